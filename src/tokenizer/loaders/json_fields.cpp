#include "tokenizer/loaders/json_fields.h"

#include <fmt/format.h>

namespace sluice::tokenizer {

const json::value* JsonFields::value(std::string_view key) const {
  const json::value* found = object_.if_contains(json::string_view(key.data(), key.size()));
  return found == nullptr || found->is_null() ? nullptr : found;
}

const json::object* JsonFields::object(std::string_view key) {
  const json::value* found = value(key);
  if (found == nullptr) return nullptr;
  if (!found->is_object()) fail(fmt::format("'{}' must be an object", key));
  return found->if_object();
}

const json::array* JsonFields::array(std::string_view key) {
  const json::value* found = value(key);
  if (found == nullptr) return nullptr;
  if (!found->is_array()) fail(fmt::format("'{}' must be an array", key));
  return found->if_array();
}

void JsonFields::fail(std::string message) {
  if (status_.ok()) status_ = Error{ErrorCode::Corrupt, fmt::format("{}: {}", what_, message)};
}

}  // namespace sluice::tokenizer

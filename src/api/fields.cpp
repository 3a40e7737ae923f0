#include "api/fields.h"

#include <fmt/format.h>

#include <limits>

namespace sluice::api {

void Fields::fail(std::string message) {
  if (status_.ok()) status_ = Error{ErrorCode::InvalidArgument, std::move(message)};
}

template <class T>
std::optional<T> Fields::take(Result<std::optional<T>> found) {
  if (!found) {
    fail(found.error().message);
    return std::nullopt;
  }
  return std::move(*found);
}

const json::value* Fields::find(std::string_view name) const {
  const json::value* value = object_.if_contains(json::string_view(name.data(), name.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<int> Fields::integer(std::string_view name) {
  const std::optional<int64_t> value = take(get_int(object_, name));
  if (!value) return std::nullopt;
  if (*value < std::numeric_limits<int>::min() || *value > std::numeric_limits<int>::max()) {
    fail(fmt::format("'{}' is {}, must be within 32 bits", name, *value));
    return std::nullopt;
  }
  return static_cast<int>(*value);
}

std::optional<uint64_t> Fields::seed(std::string_view name) {
  const json::value* value = find(name);
  if (value != nullptr && value->is_uint64()) return value->get_uint64();
  const std::optional<int64_t> whole = take(get_int(object_, name));
  return whole ? std::optional(static_cast<uint64_t>(*whole)) : std::nullopt;
}

std::optional<double> Fields::number(std::string_view name) {
  return take(get_number(object_, name));
}
std::optional<bool> Fields::flag(std::string_view name) {
  return take(get_bool(object_, name));
}
std::optional<std::string> Fields::text(std::string_view name) {
  return take(get_string(object_, name));
}

std::optional<std::vector<std::string>> Fields::texts(std::string_view name) {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return std::vector<std::string>{std::string(value->get_string())};
  std::vector<std::string> out;
  const json::array* list = value->if_array();
  for (size_t i = 0; list != nullptr && i < list->size() && (*list)[i].is_string(); ++i)
    out.emplace_back((*list)[i].get_string());
  if (list == nullptr || out.size() != list->size()) {
    fail(fmt::format("'{}' must be a string or a list of strings", name));
    return std::nullopt;
  }
  return out;
}

std::optional<std::vector<Token>> Fields::tokens(std::string_view name) {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  std::vector<Token> out;
  const json::array* list = value->if_array();
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const int64_t* id = (*list)[i].if_int64();
    if (id == nullptr || *id < 0 || *id > std::numeric_limits<Token>::max()) break;
    out.push_back(static_cast<Token>(*id));
  }
  if (list == nullptr || out.size() != list->size()) {
    fail(fmt::format("'{}' must be a list of token ids", name));
    return std::nullopt;
  }
  return out;
}

}  // namespace sluice::api

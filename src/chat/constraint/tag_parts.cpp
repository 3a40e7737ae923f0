#include "chat/constraint/tag_parts.h"

#include <algorithm>

namespace sluice::chat {

namespace {

json::array to_array(const std::vector<std::string>& texts) {
  json::array out;
  for (const std::string& text : texts) out.emplace_back(text);
  return out;
}

// Whether lengths of strings are bounded anywhere: the library drops bounds of strings that must not hold a text.
bool bounds_strings(const json::value& schema) {
  if (const json::array* list = schema.if_array())
    return std::any_of(list->begin(), list->end(), bounds_strings);
  const json::object* object = schema.if_object();
  if (object == nullptr) return false;
  return std::any_of(object->begin(), object->end(), [](const auto& member) {
    return member.key() == "minLength" || member.key() == "maxLength" || bounds_strings(member.value());
  });
}

}  // namespace

json::value exactly(std::string_view text) {
  return {{"type", "const_string"}, {"value", json::string(text)}};
}

json::value one_of(json::array parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return json::object{{"type", "or"}, {"elements", std::move(parts)}};
}

json::value in_order(json::array parts) {
  return json::object{{"type", "sequence"}, {"elements", std::move(parts)}};
}

json::value maybe(json::value part) {
  return json::object{{"type", "optional"}, {"content", std::move(part)}};
}

json::value pattern(std::string_view regex) {
  return {{"type", "regex"}, {"pattern", json::string(regex)}};
}

json::value free_text(const std::vector<std::string>& without) {
  return json::object{{"type", "any_text"}, {"excludes", to_array(without)}};
}

json::value fits_schema(json::value schema, const std::vector<std::string>& without) {
  constexpr int kWhitespace = 8;  // blanks in a row: models may write them without end
  const bool excludes = !without.empty() && !bounds_strings(schema);
  json::object out{
      {"type", "json_schema"}, {"json_schema", std::move(schema)}, {"max_whitespace_cnt", kWhitespace}};
  if (excludes) out["excludes"] = to_array(without);
  return out;
}

json::value between(std::string_view begin, json::value content, std::string_view end) {
  return json::object{{"type", "tag"},
                      {"begin", json::string(begin)},
                      {"content", std::move(content)},
                      {"end", json::string(end)}};
}

}  // namespace sluice::chat

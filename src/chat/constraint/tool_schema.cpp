#include "chat/constraint/tool_schema.h"

#include <algorithm>

namespace sluice::chat {

namespace {

constexpr int kDepth = 16;

// "#/$defs/a~1b" in the document; null where it leads nowhere.
const json::value* follow(const json::value& root, std::string_view reference) {
  if (!reference.starts_with("#")) return nullptr;
  boost::system::error_code error;
  const json::string_view pointer(reference.data() + 1, reference.size() - 1);
  return root.find_pointer(pointer, error);
}

std::string_view type_of_value(const json::value& value) {
  if (value.is_null()) return "null";
  if (value.is_bool()) return "boolean";
  if (value.is_string()) return "string";
  if (value.is_array()) return "array";
  if (value.is_object()) return "object";
  return value.is_double() ? "number" : "integer";
}

void add(std::string_view type, std::vector<std::string>& out) {
  if (std::find(out.begin(), out.end(), type) == out.end()) out.emplace_back(type);
}

// False: the schema does not say.
bool add_types(const json::value& root, const json::value& given, int depth, std::vector<std::string>& out) {
  const json::value& schema = resolve(root, given);
  if (depth > kDepth || !schema.is_object()) return false;
  if (const json::value* type = keyword(schema, "type")) {
    if (type->is_string()) add(type->get_string(), out);
    for (const json::value& one : type->is_array() ? type->get_array() : json::array())
      if (one.is_string()) add(one.get_string(), out);
    return !out.empty();
  }
  if (const json::value* value = keyword(schema, "const")) {
    add(type_of_value(*value), out);
    return true;
  }
  if (const json::value* values = keyword(schema, "enum"); values != nullptr && values->is_array()) {
    for (const json::value& value : values->get_array()) add(type_of_value(value), out);
    return true;
  }
  const json::value* several = keyword(schema, "anyOf");
  if (several == nullptr) several = keyword(schema, "oneOf");
  if (several == nullptr || !several->is_array()) return false;
  return std::all_of(several->get_array().begin(), several->get_array().end(),
                     [&](const json::value& one) { return add_types(root, one, depth + 1, out); });
}

}  // namespace

const json::value* keyword(const json::value& schema, std::string_view name) {
  const json::object* object = schema.if_object();
  return object == nullptr ? nullptr : object->if_contains(name);
}

const json::value& resolve(const json::value& root, const json::value& schema) {
  const json::value* at = &schema;
  for (int i = 0; i < kDepth; ++i) {
    const json::value* reference = keyword(*at, "$ref");
    if (reference == nullptr || !reference->is_string()) return *at;
    const json::value* target = follow(root, reference->get_string());
    if (target == nullptr) return *at;
    at = target;
  }
  return *at;
}

std::vector<std::string> schema_types(const json::value& root, const json::value& schema) {
  std::vector<std::string> types;
  if (!add_types(root, schema, 0, types)) types.clear();
  return types;
}

}  // namespace sluice::chat

// Arguments between tags: strings as they are, other values as JSON.
#include <fmt/format.h>

#include <algorithm>

#include "chat/constraint/tag_parts.h"
#include "chat/constraint/tool_schema.h"
#include "chat/formats/text_cursor.h"

namespace sluice::chat {

namespace {

bool contains(const std::vector<std::string>& types, std::string_view type) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

class TaggedTag {
 public:
  explicit TaggedTag(const ToolArguments& arguments) : to_(arguments), format_(arguments.format) {}

  json::value make() {
    const json::value& root = resolve(to_.schema, to_.schema);
    const json::value* properties = keyword(root, "properties");
    for (const char* word : {"anyOf", "oneOf", "allOf", "not", "if", "patternProperties", "minProperties",
                             "dependentRequired", "dependentSchemas", "propertyNames"})
      if (keyword(root, word) != nullptr) loosen(word, "#");
    json::array parts;
    if (properties != nullptr && properties->is_object())
      for (const auto& [name, schema] : properties->get_object()) {
        json::value part = argument(std::string(name), schema);
        parts.push_back(is_required(root, name) ? std::move(part) : maybe(std::move(part)));
      }
    parts.push_back(exactly(format_.arguments_end));
    return in_order(std::move(parts));
  }

 private:
  void loosen(std::string keyword, std::string path) {
    to_.loose.push_back({to_.tool, std::move(keyword), std::move(path)});
  }

  static bool is_required(const json::value& root, std::string_view name) {
    const json::value* required = keyword(root, "required");
    if (required == nullptr || !required->is_array()) return false;
    const json::array& names = required->get_array();
    return std::any_of(names.begin(), names.end(),
                       [&](const json::value& one) { return one.is_string() && one.get_string() == name; });
  }

  std::string end_mark() const { return std::string(trimmed(format_.value_end)); }

  json::value argument(const std::string& name, const json::value& given) {
    const std::vector<std::string> types = schema_types(to_.schema, given);
    const json::value& schema = resolve(to_.schema, given);
    const bool is_text = types.size() == 1 && types.front() == "string";
    if (!format_.key_end_json.empty()) {
      json::array forms;
      if (is_text || (contains(types, "string") && is_plain(schema)))
        forms.push_back(written(name, format_.key_end, is_text ? raw(name, schema) : any_text()));
      if (!is_text) forms.push_back(written(name, format_.key_end_json, as_json(given)));
      return one_of(std::move(forms));
    }
    const bool takes_any = (types.empty() || contains(types, "string")) && is_plain(schema);
    return written(name, format_.key_end,
                   is_text     ? raw(name, schema)
                   : takes_any ? any_text()
                               : as_json(given));
  }

  json::value written(const std::string& name, const std::string& key_end, json::value value) const {
    const std::string line = format_.values_have_lines ? "\n" : "";
    return in_order({exactly(format_.key_begin + name + key_end + format_.value_begin + line),
                     std::move(value), exactly(line + format_.value_end)});
  }

  json::value any_text() const { return free_text({end_mark()}); }

  json::value as_json(const json::value& given) const {
    json::value schema = given.is_object() ? given : json::value(json::object());
    for (const char* definitions : {"$defs", "definitions"}) {
      const json::value* found = keyword(to_.schema, definitions);
      if (found != nullptr && keyword(schema, definitions) == nullptr)
        schema.as_object()[definitions] = *found;
    }
    return fits_schema(std::move(schema), {end_mark()});
  }

  // Whatever is written is a value that fits: only types are asked for, and none with parts.
  bool is_plain(const json::value& given) const {
    const json::value& schema = resolve(to_.schema, given);
    if (schema.is_bool()) return schema.get_bool();
    if (!schema.is_object()) return false;
    const auto is_harmless = [&](const auto& member) {
      const std::string_view word = member.key();
      if (word == "anyOf" || word == "oneOf") {
        const json::array* list = member.value().if_array();
        return word == "anyOf" && list != nullptr &&
               std::all_of(list->begin(), list->end(), [&](const json::value& one) { return is_plain(one); });
      }
      return word == "type" || word == "title" || word == "description" || word == "default" ||
             word == "examples";
    };
    return std::all_of(schema.get_object().begin(), schema.get_object().end(), is_harmless);
  }

  // A string without quotes.
  json::value raw(const std::string& name, const json::value& schema) {
    if (const json::value* only = keyword(schema, "const")) return texts({*only});
    if (const json::value* values = keyword(schema, "enum"); values != nullptr && values->is_array())
      return texts(values->get_array());
    for (const char* word : {"pattern", "format", "anyOf", "oneOf", "allOf", "not", "if"})
      if (keyword(schema, word) != nullptr) loosen(word, "#/properties/" + name);
    const json::value* least = keyword(schema, "minLength");
    const json::value* most = keyword(schema, "maxLength");
    if (least == nullptr && most == nullptr) return any_text();
    const auto count = [](const json::value* bound) {
      return bound != nullptr && bound->is_number() ? std::to_string(bound->to_number<int64_t>()) : "";
    };
    const std::string from = count(least).empty() ? "0" : count(least);
    return pattern(fmt::format("[^{}]{{{},{}}}", end_mark().substr(0, 1), from, count(most)));
  }

  json::value texts(const json::array& values) const {
    json::array out;
    for (const json::value& value : values)
      if (value.is_string() && value.get_string().find(end_mark()) == json::string::npos)
        out.push_back(exactly(value.get_string()));
    return out.empty() ? any_text() : one_of(std::move(out));
  }

  const ToolArguments& to_;
  const ToolFormat& format_;
};

}  // namespace

json::value tagged_arguments(const ToolArguments& arguments) {
  return TaggedTag(arguments).make();
}

}  // namespace sluice::chat

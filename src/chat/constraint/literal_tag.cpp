// Arguments as literals that are not JSON: {key:value} with quotes of the format's own, and Python's (key=value). One rule
// for each schema, so that schemas may refer to themselves.
#include <fmt/format.h>

#include <map>

#include "chat/constraint/tag_parts.h"
#include "chat/constraint/tool_schema.h"
#include "chat/formats/text_cursor.h"

namespace sluice::chat {

namespace {

std::string quoted_rule(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + '"';
}

// How literals look.
struct LiteralStyle {
  std::string assign, separator;       // in the arguments
  std::string key_quote, item_assign;  // in objects inside
  std::string string_begin, string_end, character;
  std::string yes, no, nothing;
};

LiteralStyle style_of(const ToolFormat& format) {
  if (format.syntax == CallSyntax::Python)
    return {.assign = "=",
            .separator = ", ",
            .key_quote = "\"",
            .item_assign = ": ",
            .string_begin = "\"",
            .string_end = "\"",
            .character = R"(([^"\\\x00-\x1f] | "\\" ["\\nt]))",
            .yes = "True",
            .no = "False",
            .nothing = "None"};
  // Text that has neither the quote's first two characters nor half of them at its end.
  const std::string first = format.quote.substr(0, 1), second = format.quote.substr(1, 1);
  return {.assign = ":",
          .separator = ",",
          .key_quote = "",
          .item_assign = ":",
          .string_begin = format.quote,
          .string_end = format.quote,
          .character = fmt::format(R"(([^{}] | "{}" [^{}{}]))", first, first, first, second),
          .yes = "true",
          .no = "false",
          .nothing = "null"};
}

class LiteralTag {
 public:
  explicit LiteralTag(const ToolArguments& arguments) : to_(arguments), style_(style_of(arguments.format)) {}

  json::value make() {
    const std::string members =
        object_members(resolve(to_.schema, to_.schema), "#", {"", style_.assign, "top"});
    text_ = fmt::format("root ::= {}\n", members) + text_ + common();
    return {{"type", "grammar"}, {"grammar", text_}};
  }

 private:
  struct Members {
    std::string quote, assign, stem;
  };

  void loosen(std::string keyword, const std::string& path) {
    to_.loose.push_back({to_.tool, std::move(keyword), path});
  }

  std::string common() const {
    return fmt::format(
        "text ::= {0} {1}* {2}\n"
        "whole ::= \"-\"? (\"0\" | [1-9] [0-9]{{0,15}})\n"
        "number ::= whole (\".\" [0-9]{{1,16}})?\n"
        "truth ::= {3} | {4}\n"
        "nothing ::= {5}\n"
        "anything ::= text | number | truth | nothing | list | record\n"
        "list ::= \"[\" (anything ({6} anything)*)? \"]\"\n"
        "record ::= \"{{\" (pair ({6} pair)*)? \"}}\"\n"
        "pair ::= {7} [a-zA-Z_] [a-zA-Z0-9_]* {8} anything\n",
        quoted_rule(style_.string_begin), style_.character, quoted_rule(style_.string_end),
        quoted_rule(style_.yes), quoted_rule(style_.no), quoted_rule(style_.nothing),
        quoted_rule(style_.separator), quoted_rule(style_.key_quote),
        quoted_rule(style_.key_quote + style_.item_assign));
  }

  // Members in the order of the schema: for each a rule for where nothing stands before it, and one for where something
  // does. The answer is the name of the first rule.
  std::string object_members(const json::value& schema, const std::string& path, const Members& how) {
    for (const char* word : {"anyOf", "oneOf", "allOf", "not", "if", "patternProperties", "minProperties",
                             "dependentRequired", "dependentSchemas", "propertyNames"})
      if (keyword(schema, word) != nullptr) loosen(word, path);
    const json::value* properties = keyword(schema, "properties");
    const json::object none;
    const json::object& members =
        properties != nullptr && properties->is_object() ? properties->get_object() : none;
    const std::string stem = fmt::format("{}{}", how.stem, next_++);
    size_t at = 0;
    for (const auto& [name, member] : members) {
      const std::string value = rule(member, path + "/properties/" + std::string(name));
      const std::string key = quoted_rule(how.quote + std::string(name) + how.quote + how.assign);
      const bool may_miss = !is_required(schema, name);
      const std::string skip_first = may_miss ? fmt::format(" | {}a{}", stem, at + 1) : "";
      const std::string skip_next = may_miss ? fmt::format(" | {}b{}", stem, at + 1) : "";
      text_ += fmt::format("{0}a{1} ::= {2} {3} {0}b{4}{5}\n", stem, at, key, value, at + 1, skip_first);
      text_ += fmt::format("{0}b{1} ::= {6} {2} {3} {0}b{4}{5}\n", stem, at, key, value, at + 1, skip_next,
                           quoted_rule(style_.separator));
      ++at;
    }
    text_ += fmt::format("{0}a{1} ::= \"\"\n{0}b{1} ::= \"\"\n", stem, at);
    return stem + "a0";
  }

  static bool is_required(const json::value& schema, std::string_view name) {
    const json::value* required = keyword(schema, "required");
    if (required == nullptr || !required->is_array()) return false;
    for (const json::value& one : required->get_array())
      if (one.is_string() && one.get_string() == name) return true;
    return false;
  }

  // The name of the rule for a value.
  std::string rule(const json::value& given, const std::string& path) {
    const json::value& schema = resolve(to_.schema, given);
    if (const auto found = known_.find(&schema); found != known_.end()) return found->second;
    const std::string name = fmt::format("v{}", next_++);
    known_.emplace(&schema, name);
    const std::string made = body(schema, path);
    text_ += fmt::format("{} ::= {}\n", name, made);
    return name;
  }

  std::string body(const json::value& schema, const std::string& path) {
    if (const json::value* only = keyword(schema, "const")) return literal(*only);
    if (const json::value* values = keyword(schema, "enum"); values != nullptr && values->is_array())
      return alternatives(values->get_array(), [&](const json::value& one) { return literal(one); });
    const json::value* several = keyword(schema, "anyOf");
    if (several == nullptr) several = keyword(schema, "oneOf");
    if (several != nullptr && several->is_array()) {
      if (keyword(schema, "oneOf") != nullptr) loosen("oneOf", path);
      return alternatives(several->get_array(), [&](const json::value& one) { return rule(one, path); });
    }
    for (const char* word : {"allOf", "not", "if"})
      if (keyword(schema, word) != nullptr) loosen(word, path);
    const std::vector<std::string> types = schema_types(to_.schema, schema);
    if (types.empty()) return "anything";
    std::string out;
    for (const std::string& type : types) out += (out.empty() ? "" : " | ") + of_type(type, schema, path);
    return out;
  }

  template <class Make>
  static std::string alternatives(const json::array& list, Make make) {
    std::string out;
    for (const json::value& one : list) out += (out.empty() ? "" : " | ") + make(one);
    return out.empty() ? "anything" : out;
  }

  std::string of_type(const std::string& type, const json::value& schema, const std::string& path) {
    if (type == "string") return string(schema, path);
    if (type == "boolean") return "truth";
    if (type == "null") return "nothing";
    if (type == "array") return list(schema, path);
    if (type == "object") {
      if (keyword(schema, "properties") == nullptr) return "record";
      return "(\"{\" " + object_members(schema, path, {style_.key_quote, style_.item_assign, "m"}) +
             " \"}\")";
    }
    for (const char* word : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
      if (keyword(schema, word) != nullptr) loosen(word, path);
    return type == "integer" ? "whole" : "number";
  }

  static std::string bounds(const json::value& schema, const char* least, const char* most) {
    const auto count = [&](const char* word) {
      const json::value* bound = keyword(schema, word);
      return bound != nullptr && bound->is_number() ? std::to_string(bound->to_number<int64_t>()) : "";
    };
    if (count(least).empty() && count(most).empty()) return "";
    return fmt::format("{{{},{}}}", count(least).empty() ? "0" : count(least), count(most));
  }

  std::string string(const json::value& schema, const std::string& path) {
    for (const char* word : {"pattern", "format"})
      if (keyword(schema, word) != nullptr) loosen(word, path);
    const std::string length = bounds(schema, "minLength", "maxLength");
    if (length.empty()) return "text";
    // One character each, where a bound counts them.
    const std::string_view one = to_.format.syntax == CallSyntax::Python ? R"([^"\\\x00-\x1f])" : "[^<]";
    return fmt::format("({} {}{} {})", quoted_rule(style_.string_begin), one, length,
                       quoted_rule(style_.string_end));
  }

  std::string list(const json::value& schema, const std::string& path) {
    for (const char* word : {"minItems", "maxItems", "uniqueItems", "contains", "prefixItems"})
      if (keyword(schema, word) != nullptr) loosen(word, path);
    const json::value* items = keyword(schema, "items");
    if (items == nullptr || !items->is_object()) return "list";
    const std::string item = rule(*items, path + "/items");
    return fmt::format("(\"[\" ({0} ({1} {0})*)? \"]\")", item, quoted_rule(style_.separator));
  }

  std::string literal(const json::value& value) const {
    if (value.is_null()) return quoted_rule(style_.nothing);
    if (value.is_bool()) return quoted_rule(value.get_bool() ? style_.yes : style_.no);
    if (!value.is_string()) return quoted_rule(write_json(value));
    if (to_.format.syntax == CallSyntax::Python) return quoted_rule(write_json(value));
    return quoted_rule(style_.string_begin + std::string(value.get_string()) + style_.string_end);
  }

  const ToolArguments& to_;
  LiteralStyle style_;
  std::string text_;
  std::map<const json::value*, std::string> known_;
  int next_ = 0;
};

}  // namespace

json::value literal_arguments(const ToolArguments& arguments) {
  return LiteralTag(arguments).make();
}

}  // namespace sluice::chat

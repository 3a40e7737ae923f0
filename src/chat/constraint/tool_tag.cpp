#include "chat/constraint/tool_tag.h"

#include "base/check.h"
#include "chat/constraint/tag_parts.h"
#include "chat/formats/text_cursor.h"

namespace sluice::chat {

namespace {

std::string without_leading_spaces(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  return std::string(text);
}

bool in_brackets(const ToolFormat& format) {
  return format.syntax == CallSyntax::JsonList || format.syntax == CallSyntax::JsonKeyed ||
         format.syntax == CallSyntax::Python;
}

// One call, without the marks around a list or a section.
class CallTag {
 public:
  CallTag(const ToolFormat& format, const std::string& name, const json::value& schema)
      : format_(format), name_(name), schema_(schema) {}

  json::value make(std::vector<LooseKeyword>& loose) const {
    const ToolArguments arguments{format_, name_, schema_, loose};
    const std::string begin = in_brackets(format_) ? "" : without_leading_spaces(format_.call_begin);
    const std::string end = in_brackets(format_) ? "" : format_.call_end;
    switch (format_.syntax) {
      case CallSyntax::JsonObject:
      case CallSyntax::JsonList:
        return between(begin + "{" + quote_json(format_.name_key) + ": " + quote_json(name_) + ", " +
                           quote_json(format_.arguments_key) + ": ",
                       fits_schema(schema_), "}" + end);
      case CallSyntax::JsonKeyed:
        return between("{" + quote_json(name_) + ": ", fits_schema(schema_), "}");
      case CallSyntax::NameJson:
        return named_json(begin, end);
      case CallSyntax::NameTagged:
        return between(begin + format_.name_begin + name_ + format_.name_end, tagged_arguments(arguments),
                       end);
      case CallSyntax::NameWords:
        return between(begin + name_ + "{", literal_arguments(arguments), "}" + end);
      case CallSyntax::Python:
        return between(name_ + "(", literal_arguments(arguments), ")");
      case CallSyntax::Harmony:
        break;
    }
    return between(
        "to=functions." + name_,
        in_order({one_of({exactly("<|channel|>commentary <|constrain|>json<|message|>"),
                          exactly("<|channel|>commentary json<|message|>"),
                          exactly(" <|constrain|>json<|message|>"), exactly(" json<|message|>")}),
                  fits_schema(schema_, {"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"})}),
        "");
  }

 private:
  json::value named_json(const std::string& begin, const std::string& end) const {
    const std::string name = begin + format_.name_begin + (format_.id_in_name ? "functions." : "") + name_;
    json::array parts;
    if (format_.id_in_name) parts.push_back(in_order({exactly(":"), pattern("[0-9]{1,3}")}));
    if (!format_.id_begin.empty())
      parts.push_back(maybe(in_order({exactly(format_.id_begin), pattern("[a-zA-Z0-9]{9}")})));
    parts.push_back(exactly(format_.name_end));
    parts.push_back(fits_schema(schema_));
    return between(name, in_order(std::move(parts)), format_.arguments_end + end);
  }

  const ToolFormat& format_;
  const std::string& name_;
  const json::value& schema_;
};

json::value row_of(json::array calls, std::string_view separator, bool one) {
  return json::object{{"type", "tags_with_separator"},
                      {"tags", std::move(calls)},
                      {"separator", json::string(separator)},
                      {"at_least_one", true},
                      {"stop_after_first", one}};
}

json::value begun_by(std::string_view trigger, json::array tags, bool one,
                     const std::vector<std::string>& without = {}) {
  json::array excluded;
  for (const std::string& text : without) excluded.emplace_back(text);
  return json::object{{"type", "triggered_tags"}, {"triggers", json::array{json::string(trigger)}},
                      {"tags", std::move(tags)},  {"excludes", std::move(excluded)},
                      {"at_least_one", false},    {"stop_after_first", one}};
}

// Messages with recipients in their headers. What comes before the first call of an answer that must call is its reasoning.
json::value harmony(json::array calls, CallRules rules) {
  if (!rules.required) return begun_by("to=functions.", std::move(calls), rules.one);
  return in_order({maybe(exactly("<|start|>assistant")),
                   one_of({exactly("<|channel|>commentary "), exactly(" ")}),
                   row_of(std::move(calls), "<|call|><|start|>assistant ", rules.one)});
}

// Calls without marks are known by the names of tools, at the start of an answer.
json::value bare(const ToolFormat& format, json::array calls, CallRules rules) {
  const bool in_list = format.syntax == CallSyntax::Python;
  json::value row = row_of(std::move(calls), ", ", rules.one || !in_list);
  return in_list ? between("[", std::move(row), "]") : std::move(row);
}

json::value marked(const ToolFormat& format, json::array calls, CallRules rules) {
  const bool in_list = in_brackets(format), in_section = !format.section_begin.empty();
  if (!in_list && !in_section) {
    if (rules.required) return row_of(std::move(calls), "\n", rules.one);
    return begun_by(trimmed(format.call_begin), std::move(calls), rules.one);
  }
  const std::string begin =
      without_leading_spaces(format.section_begin + (in_list ? format.call_begin + "[" : ""));
  const std::string end = (in_list ? "]" + format.call_end : "") + format.section_end;
  json::value all = between(begin, row_of(std::move(calls), in_list ? ", " : "", rules.one), end);
  if (rules.required) return all;
  std::vector<std::string> without;
  if (in_section) without.emplace_back(trimmed(format.call_begin));
  const std::string_view mark = in_section ? format.section_begin : format.call_begin;
  return begun_by(trimmed(mark), {std::move(all)}, rules.one, without);
}

// Calls without marks begin with the name of a tool.
json::value begun_by_names(const ToolFormat& format, const json::array& calls, CallRules rules) {
  json::array triggers, tags;
  const bool in_list = format.syntax == CallSyntax::Python;
  size_t at = 0;
  while (at < calls.size()) {
    const std::string begin(calls[at].at("begin").as_string());
    json::object tag = calls[at++].as_object();
    if (in_list) {
      tag["begin"] = "[" + begin;
      tag["end"] = ")]";
    }
    // Behind the name; what follows it may be written in several ways.
    triggers.emplace_back(in_list ? "[" + begin : begin.substr(0, begin.rfind(", ")));
    tags.push_back(std::move(tag));
  }
  return json::object{{"type", "triggered_tags"},
                      {"triggers", std::move(triggers)},
                      {"tags", std::move(tags)},
                      {"at_least_one", false},
                      {"stop_after_first", rules.one}};
}

}  // namespace

ToolTag make_tool_tag(const ToolFormat& format, const ToolSet& tools, CallRules rules) {
  SLUICE_CHECK(!tools.empty());
  ToolTag out;
  json::array calls;
  for (const auto& [name, schema] : tools.schemas())
    calls.push_back(CallTag(format, name, schema).make(out.loose));
  json::value whole;
  if (format.syntax == CallSyntax::Harmony) {
    whole = harmony(std::move(calls), rules);
  } else if (!format.is_bare()) {
    whole = marked(format, std::move(calls), rules);
  } else if (rules.required) {
    whole = bare(format, std::move(calls), rules);
  } else {
    whole = begun_by_names(format, calls, rules);
  }
  out.tag = json::object{{"type", "structural_tag"}, {"format", std::move(whole)}};
  return out;
}

}  // namespace sluice::chat

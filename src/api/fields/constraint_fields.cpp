#include "api/fields/constraint_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "api/core/errors.h"
#include "api/fields/field_table.h"

namespace sluice::api {

namespace {

using request::Constraint;

Status set(ParsedRequest& parsed, Constraint::Body body) {
  if (parsed.constraint) return wrong("the form of the answer is given twice; one field may say it");
  parsed.constraint = Constraint{.body = std::move(body), .after = {}};
  return {};
}

// A schema may also be sent as text.
Status set_schema(ParsedRequest& parsed, const json::value* schema, bool strict) {
  if (schema == nullptr || schema->is_null()) return wrong("'schema' is missing");
  if (!schema->is_object() && !schema->is_bool() && !schema->is_string())
    return wrong(fmt::format("the schema is {}; it must be an object", shown(*schema)));
  const std::string text = schema->is_string() ? to_text(*schema) : write_json(*schema);
  return set(parsed, request::JsonSchema{.schema = text, .strict = strict});
}

Result<bool> flag_of(const json::object& object, std::string_view name, bool otherwise) {
  const json::value* flag = object.if_contains(name);
  if (flag == nullptr || flag->is_null()) return otherwise;
  if (!flag->is_bool()) return wrong(fmt::format("'{}' is {}; it must be true or false", name, shown(*flag)));
  return flag->get_bool();
}

Status read_format(const json::object& format, const json::value* schema_object, ParsedRequest& parsed) {
  const json::value* type = format.if_contains("type");
  if (type == nullptr || !type->is_string()) return wrong("'type' is missing");
  const std::string_view name = type->get_string();
  if (name == "text") return {};
  if (name == "json_object") {
    const json::value* schema = format.if_contains("schema");
    return schema == nullptr || is_empty(*schema) ? set(parsed, request::JsonObject{})
                                                  : set_schema(parsed, schema, false);
  }
  if (name == "structural_tag") return set(parsed, request::StructuralTag{write_json(format)});
  if (name != "json_schema")
    return wrong(fmt::format(
        "'type' is {}; it must be \"text\", \"json_object\", \"json_schema\" or \"structural_tag\"",
        shown(*type)));
  const json::object* holder = schema_object == nullptr ? &format : schema_object->if_object();
  if (holder == nullptr) return wrong("'json_schema' must be an object with 'schema'");
  const Result<bool> strict = flag_of(*holder, "strict", false);
  if (!strict) return strict.error();
  return set_schema(parsed, holder->if_contains("schema"), *strict);
}

Status read_choice(const json::value& value, ParsedRequest& parsed) {
  request::Choice choice;
  const json::array* options = value.if_array();
  for (size_t i = 0; options != nullptr && i < options->size(); ++i) {
    if (!(*options)[i].is_string()) return wrong("a choice must be a list of strings");
    choice.options.push_back(to_text((*options)[i]));
  }
  if (choice.options.empty()) return wrong("a choice must be a list of strings, at least one");
  return set(parsed, std::move(choice));
}

// Members of `structured_outputs` that say how JSON is written, and those that nothing depends on.
constexpr std::string_view kJsonOptions[] = {"disable_additional_properties", "disable_any_whitespace",
                                             "any_order"};
constexpr std::string_view kForms[] = {"json", "json_object", "regex", "choice", "grammar", "structural_tag"};
constexpr std::string_view kWithoutEffect[] = {"disable_fallback", "backend", "_backend",
                                               "_backend_was_auto"};

bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Status check_members(const json::object& object) {
  for (const auto& member : object) {
    const std::string_view name = member.key();
    if (member.value().is_null() || is_one_of(name, kForms) || is_one_of(name, kJsonOptions) ||
        is_one_of(name, kWithoutEffect))
      continue;
    if (name == "whitespace_pattern")
      return Error{ErrorCode::Unsupported,
                   "'whitespace_pattern' is not supported: blanks are bounded by the server, and "
                   "'disable_any_whitespace' leaves them out"};
    return wrong(fmt::format("'structured_outputs' has no '{}'", name));
  }
  return {};
}

// How the JSON of the form that was read is written.
Status read_json_options(const json::object& object, ParsedRequest& parsed) {
  const Result<bool> closed = flag_of(object, "disable_additional_properties", true),
                     compact = flag_of(object, "disable_any_whitespace", false),
                     any_order = flag_of(object, "any_order", false);
  for (const Result<bool>* flag : {&closed, &compact, &any_order}) {
    if (!*flag) return flag->error();
  }
  if (*closed && !*compact && !*any_order) return {};
  auto* body = parsed.constraint ? &parsed.constraint->body : nullptr;
  if (auto* schema = std::get_if<request::JsonSchema>(body)) {
    schema->closed_objects = *closed;
    schema->compact = *compact;
    schema->any_order = *any_order;
    return {};
  }
  auto* any = std::get_if<request::JsonObject>(body);
  if (any == nullptr) return wrong("options of JSON are given for an answer that is not JSON");
  any->compact = *compact;
  return {};
}

Status read_text_rule(const json::value& value, std::string_view what, std::string& out) {
  if (!value.is_string() || value.get_string().empty())
    return wrong(fmt::format("'{}' is {}; it must be a text that is not empty", what, shown(value)));
  out = to_text(value);
  return {};
}

}  // namespace

Status read_response_format(const json::value& value, ParsedRequest& parsed) {
  const json::object* format = value.if_object();
  if (is_empty(value)) return {};
  if (format == nullptr)
    return wrong(fmt::format("'response_format' is {}; it must be an object", shown(value)));
  return read_format(*format, format->if_contains("json_schema"), parsed);
}

Status read_text_format(const json::value& value, ParsedRequest& parsed) {
  const json::object* format = value.if_object();
  if (is_empty(value)) return {};
  if (format == nullptr) return wrong(fmt::format("'format' is {}; it must be an object", shown(value)));
  return read_format(*format, nullptr, parsed);
}

Status read_structured_outputs(const json::value& value, ParsedRequest& parsed) {
  const json::object* object = value.if_object();
  if (is_empty(value)) return {};
  if (object == nullptr)
    return wrong(fmt::format("'structured_outputs' is {}; it must be an object", shown(value)));
  const auto given = [&](std::string_view name) -> const json::value* {
    const json::value* member = object->if_contains(name);
    return member == nullptr || member->is_null() ? nullptr : member;
  };
  if (Status known = check_members(*object); !known) return known;
  if (const json::value* schema = given("json")) {
    if (Status done = read_guided_json(*schema, parsed); !done) return done;
  }
  if (const json::value* any = given("json_object"); any != nullptr && any->is_bool() && any->get_bool()) {
    if (Status done = set(parsed, request::JsonObject{}); !done) return done;
  }
  if (const json::value* regex = given("regex")) {
    if (Status done = read_guided_regex(*regex, parsed); !done) return done;
  }
  if (const json::value* choice = given("choice")) {
    if (Status done = read_guided_choice(*choice, parsed); !done) return done;
  }
  if (const json::value* grammar = given("grammar")) {
    if (Status done = read_grammar(*grammar, parsed); !done) return done;
  }
  if (const json::value* tag = given("structural_tag")) {
    request::StructuralTag form{tag->is_string() ? to_text(*tag) : write_json(*tag)};
    if (Status done = set(parsed, std::move(form)); !done) return done;
  }
  return read_json_options(*object, parsed);
}

Status read_guided_json(const json::value& value, ParsedRequest& parsed) {
  return set_schema(parsed, &value, false);
}

Status read_guided_regex(const json::value& value, ParsedRequest& parsed) {
  request::Pattern pattern;
  if (Status done = read_text_rule(value, "regex", pattern.regex); !done) return done;
  return set(parsed, std::move(pattern));
}

Status read_guided_choice(const json::value& value, ParsedRequest& parsed) {
  return read_choice(value, parsed);
}

Status read_grammar(const json::value& value, ParsedRequest& parsed) {
  if (is_empty(value)) return {};
  std::string text;
  if (Status done = read_text_rule(value, "grammar", text); !done) return done;
  return set(parsed, request::context_free(std::move(text)));
}

Status read_json_schema(const json::value& value, ParsedRequest& parsed) {
  if (is_empty(value)) return {};
  return set_schema(parsed, &value, false);
}

Status read_ollama_format(const json::value& value, ParsedRequest& parsed) {
  if (is_empty(value)) return {};
  if (value.is_string() && value.get_string() == "json") return set(parsed, request::JsonObject{});
  if (!value.is_object())
    return wrong(fmt::format("'format' is {}; it must be \"json\" or a schema", shown(value)));
  return set_schema(parsed, &value, false);
}

}  // namespace sluice::api

#include "api/fields/tool_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/core/errors.h"
#include "api/prompt/messages.h"

namespace sluice::api {

namespace {

constexpr size_t kMostTools = 1024, kMostNameBytes = 256;

struct Definition {
  const json::object& fields;  // name, description, strict
  std::string_view schema_key;
  std::string where;
};

// Templates read all of name, description and parameters: what is missing is filled in.
Status add_tool(const Definition& definition, ParsedRequest& parsed) {
  const std::string_view name = text_of(definition.fields, "name");
  if (name.empty() || name.size() > kMostNameBytes)
    return wrong(
        fmt::format("'{}.name' must be a string of 1 to {} bytes", definition.where, kMostNameBytes));
  if (parsed.tools.find(name) != nullptr)
    return wrong(fmt::format("'{}.name' is '{}', which another tool has", definition.where, clipped(name)));
  json::object function{{"name", json::string(name)},
                        {"description", json::string(text_of(definition.fields, "description"))}};
  const json::value* schema = definition.fields.if_contains(definition.schema_key);
  if (schema != nullptr && !schema->is_null() && !schema->is_object())
    return wrong(fmt::format("'{}.{}' must be an object", definition.where, definition.schema_key));
  const bool has_schema = schema != nullptr && schema->is_object() && !schema->get_object().empty();
  function["parameters"] =
      has_schema ? *schema : json::value{{"type", "object"}, {"properties", json::object()}};
  const json::value* strict = definition.fields.if_contains("strict");
  if (strict != nullptr && strict->is_bool() && strict->get_bool()) parsed.tools.strict.emplace_back(name);
  parsed.tools.definitions.push_back({{"type", "function"}, {"function", std::move(function)}});
  return {};
}

Status check_count(const json::value& value) {
  if (value.get_array().size() > kMostTools)
    return wrong(
        fmt::format("'tools' has {} entries; the limit is {}", value.get_array().size(), kMostTools));
  return {};
}

Status use_only(std::string_view name, ParsedRequest& parsed) {
  if (name.empty()) return wrong("'tool_choice' must name a function");
  parsed.tools.only.emplace_back(name);
  return {};
}

// {type: function, function: {name}} or {type: function, name}
std::string_view named_function(const json::object& choice) {
  const json::value* function = choice.if_contains("function");
  if (function != nullptr && function->is_object()) return text_of(function->get_object(), "name");
  return text_of(choice, "name");
}

Status read_mode(std::string_view mode, ParsedRequest& parsed) {
  if (mode == "none") {
    parsed.tools.use = ToolUse::None;
  } else if (mode == "required" || mode == "any") {
    parsed.tools.use = ToolUse::Required;
  } else if (mode == "auto") {
    parsed.tools.use = ToolUse::Auto;
  } else {
    return wrong(fmt::format(
        "'tool_choice' is '{}'; it must be none, auto, required or an object that names a function",
        clipped(mode)));
  }
  return {};
}

Status use_named(std::string_view name, ParsedRequest& parsed) {
  parsed.tools.use = ToolUse::Required;
  parsed.tools.is_named = true;
  return use_only(name, parsed);
}

Status read_allowed(const json::object& choice, ParsedRequest& parsed) {
  const json::value* inner = choice.if_contains("allowed_tools");
  const json::object& allowed = inner != nullptr && inner->is_object() ? inner->get_object() : choice;
  const std::string_view mode = text_of(allowed, "mode");
  if (Status status = read_mode(mode.empty() ? "auto" : mode, parsed); !status) return status;
  const json::value* tools = allowed.if_contains("tools");
  if (tools == nullptr || !tools->is_array()) return wrong("'tool_choice.tools' must be a list");
  for (const json::value& tool : tools->get_array()) {
    if (!tool.is_object()) return wrong("'tool_choice.tools' must hold objects");
    if (text_of(tool.get_object(), "type") != "function") continue;
    if (Status status = use_only(named_function(tool.get_object()), parsed); !status) return status;
  }
  return {};
}

}  // namespace

Status read_tools(const json::value& value, ParsedRequest& parsed) {
  if (Status status = check_count(value); !status) return status;
  for (size_t i = 0; i < value.get_array().size(); ++i) {
    const json::object* tool = value.get_array()[i].if_object();
    if (tool == nullptr) return wrong(fmt::format("'tools[{}]' must be an object", i));
    const std::string_view type = text_of(*tool, "type");
    if (!type.empty() && type != "function") continue;
    const json::value* function = tool->if_contains("function");
    const bool is_nested = function != nullptr && function->is_object();
    const std::string where = fmt::format("tools[{}]{}", i, is_nested ? ".function" : "");
    if (Status status = add_tool({is_nested ? function->get_object() : *tool, "parameters", where}, parsed);
        !status)
      return status;
  }
  return {};
}

Status read_tool_choice(const json::value& value, ParsedRequest& parsed) {
  if (value.is_string()) return read_mode(value.get_string(), parsed);
  const json::object* choice = value.if_object();
  if (choice == nullptr) return wrong("'tool_choice' must be a string or an object");
  const std::string_view type = text_of(*choice, "type");
  if (type == "allowed_tools") return read_allowed(*choice, parsed);
  if (type != "function") return {};  // of a tool that the server does not run
  return use_named(named_function(*choice), parsed);
}

Status read_parallel_tool_calls(const json::value& value, ParsedRequest& parsed) {
  parsed.tools.parallel = value.get_bool();
  return {};
}

Status read_anthropic_tools(const json::value& value, ParsedRequest& parsed) {
  if (Status status = check_count(value); !status) return status;
  for (size_t i = 0; i < value.get_array().size(); ++i) {
    const json::object* tool = value.get_array()[i].if_object();
    if (tool == nullptr) return wrong(fmt::format("'tools[{}]' must be an object", i));
    const std::string_view type = text_of(*tool, "type");
    if (!type.empty() && type != "custom") continue;
    if (Status status = add_tool({*tool, "input_schema", fmt::format("tools[{}]", i)}, parsed); !status)
      return status;
  }
  return {};
}

Status read_anthropic_tool_choice(const json::value& value, ParsedRequest& parsed) {
  const json::object& choice = value.get_object();
  const json::value* alone = choice.if_contains("disable_parallel_tool_use");
  parsed.tools.parallel = alone == nullptr || !alone->is_bool() || !alone->get_bool();
  const std::string_view type = text_of(choice, "type");
  if (type != "tool") return read_mode(type, parsed);
  return use_named(text_of(choice, "name"), parsed);
}

const json::object* ToolsDraft::find(std::string_view name) const {
  for (const json::value& tool : definitions) {
    const json::object& function = tool.at("function").as_object();
    if (text_of(function, "name") == name) return &function;
  }
  return nullptr;
}

Problem check_tools(const ParsedRequest& parsed) {
  const ToolsDraft& tools = parsed.tools;
  for (const std::string& name : tools.only)
    if (tools.find(name) == nullptr)
      return invalid_value("tool_choice",
                           fmt::format("'tool_choice' names '{}', which is not in 'tools'", clipped(name)));
  if (tools.use == ToolUse::Required && tools.definitions.empty())
    return invalid_value("tool_choice", "'tool_choice' asks for a call, but 'tools' has no function");
  return std::nullopt;
}

}  // namespace sluice::api

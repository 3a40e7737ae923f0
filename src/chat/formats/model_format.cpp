#include "chat/formats/model_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "chat/formats/text_cursor.h"

namespace sluice::chat {

bool ModelFormat::reasons() const {
  return output.reasoning || (output.tools && output.tools->syntax == CallSyntax::Harmony);
}

namespace {

void add_mark_tokens(const OutputFormat& format, const tokenizer::Tokenizer& tokenizer,
                     std::vector<Token>& out) {
  for (const std::string& mark : marks_of(format)) {
    const Result<std::vector<Token>> tokens = tokenizer.encode(mark, {.parse_special = true});
    if (!tokens) continue;
    for (const Token token : *tokens)
      if (tokenizer.is_special(token)) out.push_back(token);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
}

}  // namespace

Result<ModelFormat> make_model_format(const ChatTemplate& chat_template,
                                      const tokenizer::Tokenizer& tokenizer, std::string_view tool_format) {
  TemplateFormat found = derive_format(chat_template);
  ModelFormat out{.output = std::move(found.output),
                  .shows_tools = found.shows_tools,
                  .shows_calls = found.shows_calls,
                  .mark_tokens = {}};
  if (!tool_format.empty()) {
    const ToolFormat* named = find_tool_format(tool_format);
    if (named == nullptr) {
      std::vector<std::string_view> names;
      for (const ToolFormat& format : tool_formats()) names.push_back(format.name);
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("the tool format '{}' is not known; it must be one of {}", tool_format,
                               fmt::join(names, ", "))};
    }
    out.output.tools = *named;
  }
  // A model that was not trained for calls is told the most common format.
  if (!out.output.tools) out.output.tools = *find_tool_format("hermes");
  add_mark_tokens(out.output, tokenizer, out.mark_tokens);
  return out;
}

std::vector<Token> all_mark_tokens(const ChatTemplate* chat_template, const tokenizer::Tokenizer& tokenizer) {
  std::vector<Token> tokens;
  for (const ToolFormat& format : tool_formats())
    add_mark_tokens({.tools = format, .reasoning = std::nullopt}, tokenizer, tokens);
  for (const ReasoningFormat& format : reasoning_formats())
    add_mark_tokens({.tools = std::nullopt, .reasoning = format}, tokenizer, tokens);
  if (chat_template != nullptr) add_mark_tokens(derive_format(*chat_template).output, tokenizer, tokens);
  return tokens;
}

namespace {

json::object object_of(const std::string& arguments) {
  Result<json::value> parsed = parse_json(arguments, "arguments");
  return parsed && parsed->is_object() ? parsed->get_object() : json::object();
}

std::string text_of(const json::value& value) {
  return value.is_string() ? std::string(value.get_string()) : write_json(value);
}

std::string tagged(const ToolFormat& format, const json::object& arguments) {
  std::string out;
  for (const auto& [key, value] : arguments) {
    const bool is_json = !format.key_end_json.empty() && !value.is_string();
    const std::string line = format.values_have_lines ? "\n" : "";
    out += format.key_begin + std::string(key) + (is_json ? format.key_end_json : format.key_end) +
           format.value_begin + line + text_of(value) + line + format.value_end;
  }
  return out + format.arguments_end;
}

std::string words(const ToolFormat& format, const json::value& value) {
  std::string out;
  if (const json::object* object = value.if_object()) {
    for (const auto& [key, item] : *object)
      out += (out.empty() ? "" : ",") + std::string(key) + ":" + words(format, item);
    return "{" + out + "}";
  }
  if (const json::array* list = value.if_array()) {
    for (const json::value& item : *list) out += (out.empty() ? "" : ",") + words(format, item);
    return "[" + out + "]";
  }
  return value.is_string() ? format.quote + std::string(value.get_string()) + format.quote
                           : write_json(value);
}

std::string python(const json::object& arguments) {
  std::string out;
  for (const auto& [key, value] : arguments) {
    const std::string text = value.is_bool()   ? (value.get_bool() ? "True" : "False")
                             : value.is_null() ? "None"
                                               : write_json(value);
    out += (out.empty() ? "" : ", ") + std::string(key) + "=" + text;
  }
  return "(" + out + ")";
}

// Without the marks around it.
std::string write_call(const ToolFormat& format, const ToolCall& call) {
  const std::string arguments = call.arguments.empty() ? "{}" : call.arguments;
  switch (format.syntax) {
    case CallSyntax::JsonObject:
    case CallSyntax::JsonList:
      return "{" + quote_json(format.name_key) + ": " + quote_json(call.name) + ", " +
             quote_json(format.arguments_key) + ": " + arguments + "}";
    case CallSyntax::JsonKeyed:
      return "{" + quote_json(call.name) + ": " + arguments + "}";
    case CallSyntax::NameJson:
      return (format.id_in_name && !call.id.empty() ? call.id : call.name) + format.name_end + arguments;
    case CallSyntax::NameTagged:
      return format.name_begin + call.name + format.name_end + tagged(format, object_of(arguments));
    case CallSyntax::NameWords:
      return call.name + words(format, object_of(arguments));
    case CallSyntax::Python:
      return call.name + python(object_of(arguments));
    case CallSyntax::Harmony:
      break;
  }
  return "<|channel|>commentary to=functions." + call.name + " <|constrain|>json<|message|>" + arguments +
         "<|call|>";
}

bool is_list(const ToolFormat& format) {
  return format.syntax == CallSyntax::JsonList || format.syntax == CallSyntax::JsonKeyed ||
         format.syntax == CallSyntax::Python;
}

void append_text(json::object& message, const std::string& text) {
  std::string content = text_of(message["content"].is_null() ? json::value("") : message["content"]);
  if (!content.empty()) content += "\n\n";
  message["content"] = content + text;
}

std::string describe_tools(const json::array& tools, const ToolFormat& format) {
  std::string out =
      "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with "
      "function signatures within <tools></tools> XML tags:\n<tools>";
  for (const json::value& tool : tools) out += "\n" + write_json(tool);
  out += "\n</tools>\n\nTo call functions, answer in this format:\n";
  return out + write_calls(format, {{"function-name", "", R"({"argument-name": "argument-value"})"}});
}

std::vector<ToolCall> calls_of(const json::array& calls) {
  std::vector<ToolCall> out;
  for (const json::value& item : calls) {
    const json::object& call = item.as_object();
    const json::object& function = call.at("function").as_object();
    const json::value* id = call.if_contains("id");
    const json::value* arguments = function.if_contains("arguments");
    out.push_back({std::string(function.at("name").as_string()),
                   id != nullptr && id->is_string() ? text_of(*id) : "",
                   arguments == nullptr ? "{}" : text_of(*arguments)});
  }
  return out;
}

}  // namespace

std::string write_calls(const ToolFormat& format, const std::vector<ToolCall>& calls) {
  std::string out = format.section_begin;
  if (is_list(format)) out += format.call_begin + "[";
  for (size_t i = 0; i < calls.size(); ++i) {
    if (is_list(format)) {
      out += (i > 0 ? ", " : "") + write_call(format, calls[i]);
    } else {
      out += (i > 0 && format.section_begin.empty() ? "\n" : "") + format.call_begin +
             write_call(format, calls[i]) + format.call_end;
    }
  }
  if (is_list(format)) out += "]" + format.call_end;
  return out + format.section_end;
}

json::array with_tool_text(json::array messages, const json::array& tools, const ToolFormat& format,
                           ToolText what) {
  json::array out;
  if (what.tools && !tools.empty()) {
    const bool has_system = !messages.empty() && messages.front().at("role") == "system";
    if (!has_system) out.push_back({{"role", "system"}, {"content", describe_tools(tools, format)}});
    if (has_system) append_text(messages.front().as_object(), describe_tools(tools, format));
  }
  for (json::value& item : messages) {
    json::object message = std::move(item.as_object());
    if (what.calls && message.contains("tool_calls")) {
      append_text(message, write_calls(format, calls_of(message["tool_calls"].as_array())));
      message.erase("tool_calls");
    }
    const bool is_result = what.tools && message["role"] == "tool";
    if (is_result) {
      const std::string text = "<tool_response>\n" + text_of(message["content"]) + "\n</tool_response>";
      const bool follows = !out.empty() && out.back().as_object().contains("is_result");
      if (follows) append_text(out.back().as_object(), text);
      if (follows) continue;
      message = {{"role", "user"}, {"content", text}, {"is_result", true}};
    }
    out.push_back(std::move(message));
  }
  for (json::value& message : out) message.as_object().erase("is_result");
  return out;
}

}  // namespace sluice::chat

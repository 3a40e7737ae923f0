#include "api/prompt/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "api/core/errors.h"
#include "api/prompt/base64.h"

namespace sluice::api {

namespace {

constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function"};
constexpr size_t kMostMessages = 8192;
constexpr size_t kMostVariables = 256;
constexpr size_t kMostPictures = 64;  // of a conversation

std::string_view view(const json::string& text) {
  return {text.data(), text.size()};
}

const json::value* find(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

// The arguments of a call come as a string that holds JSON; templates want the object. What does not parse stays a
// string.
json::value parsed_arguments(const json::value& value) {
  if (!value.is_string()) return value;
  Result<json::value> parsed =
      parse_json(view(value.get_string()), "arguments", {.depth = 16, .bytes = 1 << 20, .keys = kMostKeys});
  return parsed && parsed->is_object() ? std::move(*parsed) : value;
}

Result<json::array> read_calls(const json::value& value, const std::string& where) {
  const json::array* list = value.if_array();
  if (list == nullptr) return wrong(fmt::format("'{}.tool_calls' must be a list", where));
  json::array calls;
  for (const json::value& item : *list) {
    const json::object* call = item.if_object();
    const json::value* function = call == nullptr ? nullptr : find(*call, "function");
    const json::value* name =
        function == nullptr || !function->is_object() ? nullptr : find(function->get_object(), "name");
    if (name == nullptr || !name->is_string())
      return wrong(fmt::format("'{}.tool_calls' must hold objects with 'function.name'", where));
    json::object made = *call;
    json::object& inner = made["function"].get_object();
    if (json::value* arguments = inner.if_contains("arguments")) *arguments = parsed_arguments(*arguments);
    calls.push_back(std::move(made));
  }
  return calls;
}

Result<std::string> read_content(const json::value* content, const std::string& where) {
  if (content == nullptr) return std::string();
  if (content->is_string()) return std::string(content->get_string());
  if (const json::array* parts = content->if_array()) return join_parts(*parts, where + ".content");
  return wrong(fmt::format("'{}.content' must be a string or a list of parts", where));
}

// The URL of a part {"type": "image_url", "image_url": {"url": ...}} or {"type": "input_image", "image_url": ...}.
std::string_view picture_url(const json::object& part) {
  const json::value* value = find(part, "image_url");
  if (value != nullptr && value->is_object()) value = find(value->get_object(), "url");
  return value != nullptr && value->is_string() ? view(value->get_string()) : std::string_view();
}

bool is_picture(const json::value& part) {
  const json::object* object = part.if_object();
  const std::string_view type = object == nullptr ? std::string_view() : text_of(*object, "type");
  return type == "image_url" || type == "input_image";
}

// A user's parts with pictures among them: the files go to the draft, the parts stay a list.
Result<json::array> read_picture_parts(const json::array& parts, const std::string& where,
                                       ParsedRequest& parsed) {
  json::array out;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string place = fmt::format("{}.content[{}]", where, i);
    if (!is_picture(parts[i])) {
      Result<std::string> text = join_parts({parts[i]}, place);
      if (!text) return text.error();
      out.push_back(json::object{{"type", "text"}, {"text", *text}});
      continue;
    }
    const std::string_view url = picture_url(parts[i].get_object());
    Result<PictureSource> file = read_picture_url(url, place);
    if (!file) return file.error();
    if (parsed.chat.files.size() >= kMostPictures)
      return wrong(
          fmt::format("'{}' is picture {}; the limit is {}", place, kMostPictures + 1, kMostPictures));
    parsed.chat.files.push_back(std::move(*file));
    out.push_back(json::object{{"type", "image"}});
  }
  return out;
}

Result<json::object> read_message(const json::value& value, const std::string& where, ParsedRequest& parsed) {
  const json::object* object = value.if_object();
  if (object == nullptr) return wrong(fmt::format("'{}' must be an object", where));
  const json::value* role = find(*object, "role");
  const bool known = role != nullptr && role->is_string() &&
                     std::find(kRoles.begin(), kRoles.end(), view(role->get_string())) != kRoles.end();
  if (!known)
    return wrong(fmt::format("'{}.role' is {}; it must be one of {}", where,
                             role == nullptr ? "missing" : shown(*role), fmt::join(kRoles, ", ")));
  const std::string_view name = view(role->get_string());
  // An assistant's turn may be calls alone.
  if (find(*object, "content") == nullptr && name != "assistant")
    return wrong(fmt::format("'{}.content' is missing", where));
  const json::value* given = find(*object, "content");
  const json::array* parts = given == nullptr ? nullptr : given->if_array();
  json::value content;
  if (parts != nullptr && name == "user" && std::any_of(parts->begin(), parts->end(), is_picture)) {
    Result<json::array> read = read_picture_parts(*parts, where, parsed);
    if (!read) return read.error();
    content = std::move(*read);
  } else {
    Result<std::string> text = read_content(given, where);
    if (!text) return text.error();
    content = json::string(*text);
  }
  json::object message{{"role", json::string(name == "developer"  ? "system"
                                             : name == "function" ? "tool"
                                                                  : name)},
                       {"content", std::move(content)}};
  for (const char* key : {"name", "tool_call_id"})
    if (const json::value* text = find(*object, key); text != nullptr && text->is_string())
      message[key] = *text;
  for (const char* key : {"reasoning", "reasoning_content"})
    if (const json::value* text = find(*object, key); text != nullptr && text->is_string())
      message["reasoning_content"] = *text;
  if (const json::value* calls = find(*object, "tool_calls"); calls != nullptr && !is_empty(*calls)) {
    Result<json::array> read = read_calls(*calls, where);
    if (!read) return read.error();
    message["tool_calls"] = std::move(*read);
  }
  return message;
}

}  // namespace

std::string_view text_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  const json::string* text = value == nullptr ? nullptr : value->if_string();
  return text == nullptr ? std::string_view() : view(*text);
}

Result<PictureSource> read_picture_url(std::string_view url, std::string_view where) {
  if (url.starts_with("http://") || url.starts_with("https://"))
    return PictureSource(PictureAddress{std::string(url), std::string(where)});
  if (!url.starts_with("data:"))
    return wrong(fmt::format("'{}' has the address '{}'; it must begin with data:, http: or https:", where,
                             clipped(url)));
  const size_t comma = url.find(',');
  if (comma == std::string_view::npos || !url.substr(0, comma).ends_with(";base64"))
    return wrong(fmt::format("'{}' has a 'data:' URL without ';base64,'", where));
  std::optional<std::string> file = from_base64(url.substr(comma + 1));
  if (!file) return wrong(fmt::format("'{}' has a 'data:' URL that is no base64", where));
  return PictureSource(std::move(*file));
}

Result<std::string> join_parts(const json::array& parts, std::string_view where) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const json::object* part = parts[i].if_object();
    const json::value* type = part == nullptr ? nullptr : find(*part, "type");
    if (type == nullptr || !type->is_string())
      return wrong(fmt::format("'{}[{}]' must be an object with 'type'", where, i));
    const std::string_view kind = view(type->get_string());
    const bool is_text = kind == "text" || kind == "input_text" || kind == "output_text";
    if (!is_text && kind != "refusal")
      return Error{ErrorCode::Unsupported,
                   fmt::format("'{}[{}]' is of type '{}'; texts are taken here, and pictures of users", where,
                               i, clipped(kind))};
    const json::value* content = find(*part, is_text ? "text" : "refusal");
    if (content == nullptr || !content->is_string())
      return wrong(fmt::format("'{}[{}].{}' must be a string", where, i, is_text ? "text" : "refusal"));
    if (i > 0) text += '\n';
    text += view(content->get_string());
  }
  return text;
}

Status read_message_list(const json::array& list, std::string_view name, ParsedRequest& parsed) {
  if (list.empty()) return wrong(fmt::format("'{}' is empty; it must hold at least 1 message", name));
  if (list.size() > kMostMessages)
    return wrong(fmt::format("'{}' has {} entries; the limit is {}", name, list.size(), kMostMessages));
  for (size_t i = 0; i < list.size(); ++i) {
    Result<json::object> message = read_message(list[i], fmt::format("{}[{}]", name, i), parsed);
    if (!message) return message.error();
    parsed.chat.messages.push_back(std::move(*message));
  }
  return {};
}

Status read_messages(const json::value& value, ParsedRequest& parsed) {
  return read_message_list(value.get_array(), "messages", parsed);
}

Status read_template_variables(const json::value& value, ParsedRequest& parsed) {
  constexpr std::array<std::string_view, 8> kOwn = {"messages",
                                                    "tools",
                                                    "documents",
                                                    "tokenize",
                                                    "chat_template",
                                                    "add_generation_prompt",
                                                    "continue_final_message",
                                                    "conversation"};
  if (value.get_object().size() > kMostVariables)
    return wrong(fmt::format("'chat_template_kwargs' has {} variables; the limit is {}",
                             value.get_object().size(), kMostVariables));
  for (const auto& [key, content] : value.get_object()) {
    const std::string_view name(key.data(), key.size());
    if (std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end() || name.ends_with("_token"))
      return wrong(fmt::format("'chat_template_kwargs' sets '{}', which is the server's own", clipped(name)));
    parsed.chat.variables[key] = content;
  }
  return {};
}

}  // namespace sluice::api

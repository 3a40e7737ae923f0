#include "api/anthropic/anthropic_messages.h"

#include <fmt/format.h>

#include "api/core/errors.h"
#include "api/prompt/messages.h"

namespace sluice::api {

namespace {

constexpr std::string_view kBillingHeader = "x-anthropic-billing-header";

void append_line(std::string& text, std::string_view more) {
  if (!text.empty() && !more.empty()) text += '\n';
  text += more;
}

// What one message becomes: the results of calls stand before its text.
struct Unfolded {
  std::string text, reasoning;
  json::array parts;  // texts and pictures as OpenAI's clients send them, where there is a picture
  bool has_pictures = false;
  json::array calls, results;
};

Status add_picture(const json::object& block, const std::string& where, Unfolded& out) {
  const json::value* value = block.if_contains("source");
  const json::object* source = value == nullptr ? nullptr : value->if_object();
  if (source == nullptr)
    return Error{ErrorCode::InvalidArgument, fmt::format("'{}.source' must be an object", where)};
  const std::string_view type = text_of(*source, "type");
  if (type != "base64" && type != "url")
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("'{}.source.type' is '{}', must be base64 or url", where, clipped(type))};
  std::string url(text_of(*source, "url"));
  if (type == "base64")
    url = fmt::format("data:{};base64,{}", text_of(*source, "media_type"), text_of(*source, "data"));
  out.parts.push_back(json::object{{"type", "image_url"}, {"image_url", json::object{{"url", url}}}});
  out.has_pictures = true;
  return {};
}

Result<std::string> result_text(const json::object& block, const std::string& where) {
  const json::value* content = block.if_contains("content");
  if (content == nullptr || content->is_null()) return std::string();
  if (content->is_string()) return std::string(content->get_string());
  if (const json::array* parts = content->if_array()) return join_parts(*parts, where + ".content");
  return Error{ErrorCode::InvalidArgument,
               fmt::format("'{}.content' must be a string or a list of blocks", where)};
}

Status unfold(const json::object& block, const std::string& where, Unfolded& out) {
  const std::string_view type = text_of(block, "type");
  if (type == "text") {
    append_line(out.text, text_of(block, "text"));
    out.parts.push_back(json::object{{"type", "text"}, {"text", json::string(text_of(block, "text"))}});
  } else if (type == "image") {
    return add_picture(block, where, out);
  } else if (type == "thinking") {
    append_line(out.reasoning, text_of(block, "thinking"));
  } else if (type == "tool_use") {
    const json::value* input = block.if_contains("input");
    out.calls.push_back(
        {{"id", json::string(text_of(block, "id"))},
         {"type", "function"},
         {"function",
          {{"name", json::string(text_of(block, "name"))},
           {"arguments", input != nullptr && input->is_object() ? *input : json::object()}}}});
  } else if (type == "tool_result") {
    Result<std::string> text = result_text(block, where);
    if (!text) return text.error();
    out.results.push_back({{"role", "tool"},
                           {"tool_call_id", json::string(text_of(block, "tool_use_id"))},
                           {"content", *text}});
  } else if (type != "redacted_thinking") {
    return Error{ErrorCode::Unsupported,
                 fmt::format("'{}' is of type '{}', which is not supported", where, clipped(type))};
  }
  return {};
}

Status unfold_content(const json::value& content, const std::string& where, Unfolded& out) {
  if (content.is_string()) {
    out.text = content.get_string();
    return {};
  }
  const json::array* blocks = content.if_array();
  if (blocks == nullptr)
    return Error{ErrorCode::InvalidArgument, fmt::format("'{}' must be a string or a list of blocks", where)};
  for (size_t i = 0; i < blocks->size(); ++i) {
    const std::string place = fmt::format("{}[{}]", where, i);
    const json::object* block = (*blocks)[i].if_object();
    if (block == nullptr)
      return Error{ErrorCode::InvalidArgument, fmt::format("'{}' must be an object", place)};
    if (Status status = unfold(*block, place, out); !status) return status;
  }
  return {};
}

}  // namespace

Status read_anthropic_system(const json::value& value, ParsedRequest& parsed) {
  std::string system;
  if (value.is_string()) {
    system = value.get_string();
  } else {
    const json::array* blocks = value.if_array();
    if (blocks == nullptr)
      return Error{ErrorCode::InvalidArgument, "'system' must be a string or a list of text blocks"};
    for (const json::value& block : *blocks) {
      const json::object* object = block.if_object();
      if (object == nullptr || text_of(*object, "type") != "text")
        return Error{ErrorCode::InvalidArgument, "'system' must be a string or a list of text blocks"};
      const std::string_view text = text_of(*object, "text");
      if (!text.starts_with(kBillingHeader)) append_line(system, text);
    }
  }
  if (!system.empty()) parsed.chat.messages.push_back({{"role", "system"}, {"content", system}});
  return {};
}

Status read_anthropic_messages(const json::value& value, ParsedRequest& parsed) {
  json::array plain;
  for (size_t i = 0; i < value.get_array().size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    const json::object* message = value.get_array()[i].if_object();
    if (message == nullptr)
      return Error{ErrorCode::InvalidArgument, fmt::format("'{}' must be an object", where)};
    const std::string_view role = text_of(*message, "role");
    if (role != "user" && role != "assistant" && role != "system")
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("'{}.role' must be user, assistant or system", where)};
    const json::value* content = message->if_contains("content");
    if (content == nullptr)
      return Error{ErrorCode::InvalidArgument, fmt::format("'{}.content' is missing", where)};
    Unfolded parts;
    if (Status status = unfold_content(*content, where + ".content", parts); !status) return status;
    const bool only_results = !parts.results.empty() && parts.text.empty() && !parts.has_pictures;
    for (json::value& result : parts.results) plain.push_back(std::move(result));
    if (only_results) continue;
    json::object made{{"role", json::string(role)}, {"content", parts.text}};
    if (parts.has_pictures) made["content"] = std::move(parts.parts);
    if (!parts.calls.empty()) made["tool_calls"] = std::move(parts.calls);
    if (!parts.reasoning.empty()) made["reasoning_content"] = parts.reasoning;
    plain.push_back(std::move(made));
  }
  if (Status status = read_message_list(plain, "messages", parsed); !status) return status;
  const json::object& last = parsed.chat.messages.back().get_object();
  if (last.at("role") == "assistant" && !last.at("content").get_string().empty()) {
    parsed.chat.continue_final_message = true;
    parsed.chat.add_generation_prompt = false;
  }
  return {};
}

}  // namespace sluice::api

#include "api/anthropic/anthropic.h"

#include <fmt/format.h>

#include "api/anthropic/anthropic_answer.h"
#include "api/anthropic/anthropic_messages.h"
#include "api/core/errors.h"
#include "api/core/generation.h"
#include "api/fields/compress_fields.h"
#include "api/fields/constraint_fields.h"
#include "api/fields/sampling_fields.h"
#include "api/fields/tool_fields.h"

namespace sluice::api {

namespace {

std::string_view type_of(const json::value& value) {
  const json::object* object = value.if_object();
  const json::value* type = object == nullptr ? nullptr : object->if_contains("type");
  if (type == nullptr || !type->is_string()) return {};
  return {type->get_string().data(), type->get_string().size()};
}

Status read_thinking(const json::value& value, ParsedRequest& parsed) {
  parsed.chat.variables["enable_thinking"] = type_of(value) != "disabled";
  const json::value* budget = value.get_object().if_contains("budget_tokens");
  if (budget == nullptr || type_of(value) == "disabled") return {};
  if (!budget->is_int64() || budget->get_int64() < 1 ||
      budget->get_int64() > request::SamplingLimits::kMaxTokens)
    return wrong(fmt::format("'thinking.budget_tokens' is {}; it must be from 1 to {}", shown(*budget),
                             request::SamplingLimits::kMaxTokens));
  parsed.reasoning.budget = static_cast<int>(budget->get_int64());
  parsed.reasoning.budget_field = "thinking.budget_tokens";
  return {};
}

Status read_effort(const json::value& value, ParsedRequest& parsed) {
  parsed.chat.variables["reasoning_effort"] = value;
  return {};
}

constexpr Field kOutputConfig[] = {
    used("effort", {Kind::Text}, "reasoning_effort for the chat template", read_effort),
    used("format", {}, "{type: json_schema, schema}: what the answer must be", read_text_format),
};

constexpr Field kAnthropicConversation[] = {
    used("system", {}, "a string or a list of text blocks", read_anthropic_system),
    required(used("messages", {Kind::List},
                  "objects with role (user, assistant, system) and content (a string or blocks of text, "
                  "image, thinking, "
                  "tool_use and tool_result); a last one of the assistant is continued",
                  read_anthropic_messages)),
    used("thinking", {Kind::Object},
         "{type: enabled or disabled, budget_tokens}: enable_thinking for the chat template, and the most "
         "tokens of the reasoning",
         read_thinking),
    nested("output_config", "how the model works on the answer", kOutputConfig),
    used("tools", {Kind::List}, "{name, description, input_schema}; tools of the server's are left out",
         read_anthropic_tools),
    used("tool_choice", {Kind::Object},
         "{type: auto, any, tool with name, which is called once, or none; disable_parallel_tool_use}",
         read_anthropic_tool_choice)
        .by_default("auto"),
    ignored("metadata", "notes of the client"),
    ignored("service_tier", "there is one"),
    ignored("context_management", "conversations are taken as they are"),
    ignored("mcp_servers", "the server calls nobody"),
    ignored("container", "there is none"),
    ignored("cache_control", "prefixes are shared by content"),
};

constexpr Field kMessage[] = {
    required(used("max_tokens", integer(1, request::SamplingLimits::kMaxTokens),
                  "most tokens of the answer; cut to what fits", into<&ParsedRequest::max_tokens>)),
    used("temperature", number(0, 1), "0: always the likeliest token", into<&ParsedRequest::temperature>)
        .by_default("the model's"),
    used("top_p", number(0, 1), "keep the smallest set of tokens of at least this mass",
         into<&ParsedRequest::top_p>)
        .by_default("the model's"),
    used("top_k", integer(-1), "keep the k likeliest tokens", into<&ParsedRequest::top_k>)
        .by_default("the model's"),
    used("stop_sequences", {Kind::Texts}, "at most 16 strings that end the answer",
         into<&ParsedRequest::stop>),
    used("stream", {Kind::Boolean}, "send the answer in pieces as it is made", into<&ParsedRequest::stream>),
};

}  // namespace

const RequestSchema& message_schema() {
  static const RequestSchema schema{
      "MessageRequest",
      {kAnthropicConversation, kMessage, model_field(), speculate_field(), compress_field()}};
  return schema;
}
const RequestSchema& count_schema() {
  static const RequestSchema schema{"CountTokensRequest", {kAnthropicConversation, model_field()}};
  return schema;
}

Reply create_message(const Call& call) {
  ParsedRequest parsed;
  parsed.cut_max_tokens = true;
  if (Problem problem = read_body(call, message_schema(), parsed)) return *problem;
  return generate(call, std::move(parsed), make_either<MessageAnswer, MessageStream>);
}

Reply count_tokens(const Call& call) {
  ParsedRequest parsed;
  if (Problem problem = read_body(call, count_schema(), parsed)) return *problem;
  Problem problem;
  const ServedModel* model = choose_model(call, parsed, problem);
  if (problem) return *problem;
  std::vector<std::vector<Token>> prompts;
  if ((problem = encode_prompts(call, *model, parsed, Purpose::Show, prompts))) return *problem;
  return Answer{.body = write_json(json::object{{"input_tokens", prompts.front().size()}})};
}

}  // namespace sluice::api

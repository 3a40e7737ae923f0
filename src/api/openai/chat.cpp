#include "api/openai/chat.h"

#include <fmt/format.h>

#include "api/core/errors.h"
#include "api/core/generation.h"
#include "api/fields/compress_fields.h"
#include "api/fields/sampling_fields.h"
#include "api/fields/tool_fields.h"
#include "api/openai/chat_answer.h"
#include "api/prompt/messages.h"

namespace sluice::api {

namespace {

Status read_reasoning_effort(const json::value& value, ParsedRequest& parsed) {
  parsed.chat.variables["reasoning_effort"] = value;
  if (value.get_string() == "none") parsed.chat.variables["enable_thinking"] = false;
  return {};
}

template <const char* name>
Status read_budget(const json::value& value, ParsedRequest& parsed) {
  parsed.reasoning.budget = to_int(value);
  parsed.reasoning.budget_field = name;
  return {};
}
constexpr char kThinkingBudget[] = "thinking_token_budget", kMaxThinking[] = "max_thinking_tokens",
               kShortBudget[] = "thinking_budget";

Status read_reasoning_format(const json::value& value, ParsedRequest& parsed) {
  parsed.reasoning.is_split = value.get_string() != "none";
  return {};
}
Status read_include_reasoning(const json::value& value, ParsedRequest& parsed) {
  parsed.reasoning.is_shown = value.get_bool();
  return {};
}

Status read_documents(const json::value& value, ParsedRequest& parsed) {
  for (const json::value& item : value.get_array())
    if (!item.is_object()) return Error{ErrorCode::InvalidArgument, "'documents' must hold objects"};
  parsed.chat.variables["documents"] = value;
  return {};
}

Status read_add_generation_prompt(const json::value& value, ParsedRequest& parsed) {
  parsed.chat.add_generation_prompt = value.get_bool();
  return {};
}
Status read_continue_final_message(const json::value& value, ParsedRequest& parsed) {
  parsed.chat.continue_final_message = value.get_bool();
  return {};
}

constexpr Field kConversation[] = {
    used("add_generation_prompt", {Kind::Boolean}, "the prompt ends where an answer starts",
         read_add_generation_prompt)
        .by_default("true"),
    used("continue_final_message", {Kind::Boolean},
         "the answer goes on with the last message; add_generation_prompt must be false",
         read_continue_final_message),
    used("documents", {Kind::List}, "objects that the chat template may show to the model", read_documents),
    used("reasoning_effort", {Kind::Text},
         "for the chat template; where that does not read it, a limit of the reasoning: none 0, minimal 256, "
         "low 1024, medium 4096 tokens. \"none\" also sets enable_thinking to false",
         read_reasoning_effort),
    used("chat_template_kwargs", {Kind::Object}, "more variables for the chat template",
         read_template_variables),
    unsupported("chat_template", "requests bring no templates; the model's own is used", is_empty),
    ignored("mm_processor_kwargs", "models read text"),
    ignored("media_io_kwargs", "models read text"),
    used("reasoning_format", {Kind::Text}, "\"none\" leaves the reasoning in the content",
         read_reasoning_format)
        .by_default("auto"),
    used("include_reasoning", {Kind::Boolean}, "give the reasoning apart from the content",
         read_include_reasoning)
        .by_default("true"),
    used(kThinkingBudget, integer(0),
         "most tokens of the reasoning, which then ends with the template's closing text",
         read_budget<kThinkingBudget>),
    used(kMaxThinking, integer(0), "the same", read_budget<kMaxThinking>),
    used(kShortBudget, integer(0), "the same", read_budget<kShortBudget>),
    used("tools", {Kind::List},
         "functions that the model may call: {type: function, function: {name, description, parameters, "
         "strict}}; other types are left out",
         read_tools),
    used("tool_choice", {},
         "\"none\", \"auto\", \"required\", a named function, which is called once, or allowed_tools",
         read_tool_choice)
        .by_default("auto"),
    used("parallel_tool_calls", {Kind::Boolean}, "an answer may hold several calls; else it ends after one",
         read_parallel_tool_calls)
        .by_default("true"),
    ignored("parse_tool_calls", "calls are always read"),
};

constexpr Field kMessages[] = {
    required(used(
        "messages", {Kind::List},
        "objects with role (system, developer, user, assistant, tool, function) and content (a string or a "
        "list of text parts and, of users, of image_url parts with data: or http(s) URLs)",
        read_messages)),
};

}  // namespace

std::span<const Field> conversation_fields() {
  return kConversation;
}

const RequestSchema& chat_schema() {
  static const RequestSchema schema{
      "ChatCompletionRequest",
      {kMessages, model_field(), conversation_fields(), switch_logprobs_fields(), sampling_fields(),
       speculate_field(), compress_field(), envelope_fields()}};
  return schema;
}

Reply chat_completion(const Call& call) {
  ParsedRequest parsed;
  if (Problem problem = read_body(call, chat_schema(), parsed)) return *problem;
  if (parsed.top_logprobs.value_or(0) > 0 && !parsed.logprobs_wanted)
    return invalid_value(
        "top_logprobs",
        fmt::format("'top_logprobs' is {}, which needs 'logprobs' to be true", *parsed.top_logprobs));
  return generate(call, std::move(parsed), make_either<ChatAnswer, ChatStream>);
}

}  // namespace sluice::api

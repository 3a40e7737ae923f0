#include "api/openai/responses.h"

#include <fmt/format.h>

#include "api/core/errors.h"
#include "api/core/generation.h"
#include "api/fields/compress_fields.h"
#include "api/fields/constraint_fields.h"
#include "api/fields/sampling_fields.h"
#include "api/fields/tool_fields.h"
#include "api/openai/chat.h"
#include "api/openai/responses_answer.h"
#include "api/prompt/messages.h"

namespace sluice::api {

namespace {

Status read_instructions(const json::value& value, ParsedRequest& parsed) {
  parsed.chat.messages.push_back({{"role", "system"}, {"content", value}});
  parsed.echoed["instructions"] = value;
  return {};
}

// An item of the input as a message; empty for items that a template has no use for.
Result<json::object> to_message(const json::object& item, size_t index) {
  const std::string_view type = text_of(item, "type");
  if (type.empty() || type == "message") return item;
  if (type == "reasoning") return json::object();
  if (type == "function_call") {
    json::object call{{"id", json::string(text_of(item, "call_id"))},
                      {"type", "function"},
                      {"function",
                       {{"name", json::string(text_of(item, "name"))},
                        {"arguments", json::string(text_of(item, "arguments"))}}}};
    return json::object{{"role", "assistant"}, {"content", ""}, {"tool_calls", json::array{std::move(call)}}};
  }
  if (type == "function_call_output") {
    const json::value* output = item.if_contains("output");
    return json::object{{"role", "tool"},
                        {"tool_call_id", json::string(text_of(item, "call_id"))},
                        {"content", output == nullptr ? json::value("") : *output}};
  }
  return Error{ErrorCode::Unsupported,
               fmt::format("'input[{}]' is of type '{}', which is not supported", index, clipped(type))};
}

// Calls of one answer come as items of their own: they are one message to a template.
bool joins_calls(json::object& message, json::array& messages) {
  json::value* calls = message.if_contains("tool_calls");
  if (calls == nullptr || messages.empty()) return false;
  json::object& last = messages.back().get_object();
  if (text_of(last, "role") != "assistant") return false;
  json::value& joined = last["tool_calls"];
  if (!joined.is_array()) joined.emplace_array();
  for (json::value& call : calls->get_array()) joined.get_array().push_back(std::move(call));
  return true;
}

Status read_input(const json::value& value, ParsedRequest& parsed) {
  if (value.is_string()) return read_message_list({{{"role", "user"}, {"content", value}}}, "input", parsed);
  const json::array* items = value.if_array();
  if (items == nullptr)
    return Error{ErrorCode::InvalidArgument, "'input' must be a string or a list of items"};
  json::array messages;
  for (size_t i = 0; i < items->size(); ++i) {
    const json::object* item = (*items)[i].if_object();
    if (item == nullptr)
      return Error{ErrorCode::InvalidArgument, fmt::format("'input[{}]' must be an object", i)};
    Result<json::object> message = to_message(*item, i);
    if (!message) return message.error();
    if (message->empty()) continue;
    if (joins_calls(*message, messages)) continue;
    messages.push_back(std::move(*message));
  }
  return read_message_list(messages, "input", parsed);
}

Status read_include(const json::value& value, ParsedRequest& parsed) {
  for (const json::value& item : value.get_array())
    parsed.logprobs_wanted = parsed.logprobs_wanted || item == "message.output_text.logprobs";
  return {};
}

Status read_echoed_effort(const json::value& value, ParsedRequest& parsed) {
  parsed.chat.variables["reasoning_effort"] = value;
  parsed.echoed["effort"] = value;
  return {};
}

Status read_metadata(const json::value& value, ParsedRequest& parsed) {
  if (value.get_object().size() > 16)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("'metadata' has {} entries; the limit is 16", value.get_object().size())};
  parsed.echoed["metadata"] = value;
  return {};
}

Status read_truncation(const json::value& value, ParsedRequest& parsed) {
  if (value.get_string() == "auto") {
    parsed.truncate_prompt_tokens = -1;
  } else if (value.get_string() != "disabled") {
    return wrong(fmt::format("'truncation' is {}; it must be \"auto\" or \"disabled\"", shown(value)));
  }
  parsed.echoed["truncation"] = value;
  return {};
}

Status read_echoed_format(const json::value& value, ParsedRequest& parsed) {
  if (!is_empty(value)) parsed.echoed["format"] = value;
  return read_text_format(value, parsed);
}

Status read_echoed_tools(const json::value& value, ParsedRequest& parsed) {
  parsed.echoed["tools"] = value;
  return read_tools(value, parsed);
}
Status read_echoed_choice(const json::value& value, ParsedRequest& parsed) {
  parsed.echoed["tool_choice"] = value;
  return read_tool_choice(value, parsed);
}

constexpr Field kText[] = {
    used("format", {},
         "{type: text, json_object, or json_schema with schema and strict}: what the answer must be",
         read_echoed_format),
    ignored("verbosity", "a hint to other models"),
};
constexpr Field kReasoning[] = {
    used("effort", {Kind::Text}, "reasoning_effort for the chat template", read_echoed_effort),
    ignored("summary", "reasoning is given in full"),
    ignored("generate_summary", "reasoning is given in full"),
};

constexpr Field kInput[] = {
    used("instructions", {Kind::Text}, "a system message before the input", read_instructions),
    required(
        used("input", {}, "a string, or a list of messages, function calls and their outputs", read_input)),
    nested("reasoning", "how the model thinks", kReasoning),
    nested("text", "the form of the answer", kText),
    used("truncation", {Kind::Text}, "\"auto\" drops the first tokens of what does not fit", read_truncation)
        .by_default("disabled"),
    unsupported("previous_response_id", "answers are not stored; send the conversation as input"),
    unsupported("conversation", "conversations are not stored; send them as input"),
    unsupported("prompt", "prompts are not stored"),
    used("tools", {Kind::List},
         "functions that the model may call: {type: function, name, description, parameters}; other types "
         "are left out",
         read_echoed_tools),
    used("tool_choice", {},
         "\"none\", \"auto\", \"required\", a named function, which is called once, or allowed_tools",
         read_echoed_choice)
        .by_default("auto"),
    used("parallel_tool_calls", {Kind::Boolean},
         "an answer may hold several calls; else the first one is given", read_parallel_tool_calls)
        .by_default("true"),
};

constexpr Field kResponse[] = {
    used("max_output_tokens", integer(1, request::SamplingLimits::kMaxTokens), "most tokens of the answer",
         into<&ParsedRequest::max_tokens>)
        .by_default("what fits"),
    used("top_logprobs", integer(0, request::SamplingLimits::kLogprobs),
         "how many likeliest tokens are given with each", into<&ParsedRequest::top_logprobs>)
        .by_default("0"),
    used("include", {Kind::List},
         "\"message.output_text.logprobs\" gives log-probabilities; others are ignored", read_include),
    used("metadata", {Kind::Object}, "at most 16 entries that the answer repeats", read_metadata),
    unsupported("background", "answers are sent at once", is_empty),
    ignored("max_tool_calls", "the server runs no tools"),
    ignored("context_management", "conversations are taken as they are"),
    ignored("client_metadata", "notes of the client"),
};

}  // namespace

const RequestSchema& response_schema() {
  static const RequestSchema schema{"ResponseRequest",
                                    {kInput, kResponse, model_field(), sampling_fields(), speculate_field(),
                                     compress_field(), envelope_fields()}};
  return schema;
}
const RequestSchema& input_tokens_schema() {
  static const RequestSchema schema{"InputTokensRequest", {kInput, model_field()}};
  return schema;
}

Reply create_response(const Call& call) {
  ParsedRequest parsed;
  if (Problem problem = read_body(call, response_schema(), parsed)) return *problem;
  if (parsed.n != 1) return unsupported_parameter("n", "'n' is not supported: a response has one answer");
  return generate(call, std::move(parsed), make_either<ResponseAnswer, ResponseStream>);
}

Reply count_input_tokens(const Call& call) {
  ParsedRequest parsed;
  if (Problem problem = read_body(call, input_tokens_schema(), parsed)) return *problem;
  Problem problem;
  const ServedModel* model = choose_model(call, parsed, problem);
  if (problem) return *problem;
  std::vector<std::vector<Token>> prompts;
  if ((problem = encode_prompts(call, *model, parsed, Purpose::Show, prompts))) return *problem;
  return Answer{.body = write_json(json::object{{"object", "response.input_tokens"},
                                                {"input_tokens", prompts.front().size()}})};
}

}  // namespace sluice::api

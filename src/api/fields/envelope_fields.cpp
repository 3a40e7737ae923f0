// Fields around the request: streams, identifiers, what is ignored and what is refused.
#include <fmt/format.h>

#include "api/core/errors.h"
#include "api/fields/constraint_fields.h"
#include "api/fields/sampling_fields.h"

namespace sluice::api {

namespace {

Status read_request_id(const json::value& value, ParsedRequest& parsed) {
  parsed.request_id = to_text(value);
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == ':';
  };
  const bool sound = !parsed.request_id.empty() && parsed.request_id.size() <= 128 &&
                     std::all_of(parsed.request_id.begin(), parsed.request_id.end(), plain);
  if (sound) return {};
  return Error{ErrorCode::InvalidArgument, "'request_id' must be 1 to 128 letters, digits or any of '-_.:'"};
}

bool is_text_alone(const json::value& value) {
  const json::array* list = value.if_array();
  return list != nullptr && (list->empty() || (list->size() == 1 && list->front() == "text"));
}

constexpr Field kStreamOptions[] = {
    used("include_usage", {Kind::Boolean}, "a last chunk with the usage of the request",
         into<&ParsedRequest::include_usage>),
    used("continuous_usage_stats", {Kind::Boolean}, "the usage so far in every chunk",
         into<&ParsedRequest::continuous_usage>),
    ignored("include_obfuscation", "padding against guessing from sizes"),
};

constexpr std::string_view kTools = "tool calls are not offered", kNoSampler = "this sampler is not offered";

constexpr Field kEnvelope[] = {
    used("stream", {Kind::Boolean}, "send the answer in pieces as it is made", into<&ParsedRequest::stream>),
    nested("stream_options", "what a stream says besides", kStreamOptions),
    used("request_id", {Kind::Text}, "becomes part of the answer's id", read_request_id).by_default("random"),
    used("return_tokens_as_token_ids", {Kind::Boolean}, "log-probabilities name tokens as \"token_id:N\"",
         into<&ParsedRequest::tokens_as_ids>),
    used("return_token_ids", {Kind::Boolean}, "give the token ids of prompt and answer",
         into<&ParsedRequest::return_token_ids>),
    used("truncate_prompt_tokens", integer(-1), "keep this many tokens of a longer prompt; -1: what fits",
         into<&ParsedRequest::truncate_prompt_tokens>),
    used("truncation_side", {Kind::Text}, "\"left\" drops the first tokens, \"right\" the last",
         [](const json::value& value, ParsedRequest& parsed) -> Status {
           parsed.truncate_right = value.get_string() == "right";
           if (parsed.truncate_right || value.get_string() == "left") return {};
           return wrong(
               fmt::format("'truncation_side' is {}; it must be \"left\" or \"right\"", shown(value)));
         })
        .by_default("left"),
    used("add_special_tokens", {Kind::Boolean}, "put the tokens around the prompt that the model expects",
         into<&ParsedRequest::add_special_tokens>)
        .by_default("true for texts, false for conversations"),
    used("echo", {Kind::Boolean}, "the answer starts with the prompt, or with the message it continues",
         into<&ParsedRequest::echo>),

    used("response_format", {},
         "{type: text, json_object, json_schema with schema and strict, or structural_tag}: what the answer "
         "must be",
         read_response_format)
        .by_default("text"),
    used("structured_outputs", {},
         "one of json, json_object, regex, choice, grammar, structural_tag; for JSON also any_order, "
         "disable_any_whitespace, disable_additional_properties",
         read_structured_outputs),
    used("guided_json", {}, "the schema of the answer", read_guided_json),
    used("guided_regex", {}, "the pattern of the answer", read_guided_regex),
    used("guided_choice", {}, "the answer is one of these strings", read_guided_choice),
    used("guided_grammar", {}, "the grammar of the answer, EBNF, GBNF or Lark", read_grammar),
    used("grammar", {}, "the same as guided_grammar", read_grammar),
    used("json_schema", {}, "the same as guided_json", read_json_schema),
    ignored("guided_decoding_backend", "there is one"),

    ignored("user", "who asks, for the operator's statistics"),
    ignored("metadata", "notes of the client"),
    ignored("store", "answers are never stored"),
    ignored("service_tier", "there is one"),
    ignored("safety_identifier", "who asks"),
    ignored("prompt_cache_key", "prefixes are shared by content"),
    ignored("prompt_cache_retention", "prefixes are kept while there is room"),
    ignored("prompt_cache_options", "prefixes are shared by content"),
    ignored("verbosity", "a hint to other models"),
    ignored("parallel_tool_calls", "has no meaning without tools"),
    ignored("prediction", "a hint that changes speed only"),
    ignored("moderation", "there is none"),
    ignored("spaces_between_special_tokens", "texts are joined as the tokenizer says"),
    ignored("session_id", "requests are independent"),
    ignored("stream_interval", "every piece is sent"),
    ignored("include_reasoning", "reasoning is part of the text"),
    ignored("kv_transfer_params", "there is one server"),
    ignored("vllm_xargs", "arguments of plug-ins"),
    ignored("cache_prompt", "prefixes are always shared"),
    ignored("id_slot", "there are no slots"),
    ignored("n_keep", "contexts are not shifted"),
    ignored("n_discard", "contexts are not shifted"),
    ignored("repeat_last_n", "penalties look at the whole text"),
    ignored("timings_per_token", "timings come at the end"),
    ignored("return_progress", "a hint"),
    ignored("samplers", "the order of samplers is fixed"),
    ignored("min_keep", "filters keep at least one token"),
    ignored("sse_ping_interval", "the server's own"),

    unsupported("tools", kTools, is_empty),
    unsupported("tool_choice", kTools, is_none),
    unsupported("functions", kTools, is_empty),
    unsupported("function_call", kTools, is_none),
    unsupported("audio", "answers are text"),
    unsupported("modalities", "answers are text", is_text_alone),
    unsupported("web_search_options", "the server searches nothing"),
    unsupported("prompt_embeds", "prompts are texts or tokens"),
    unsupported("logits_processors", "requests bring no code"),
    unsupported("logprob_token_ids", "log-probabilities are of the likeliest tokens"),
    unsupported("repetition_detection", "there is none"),
    unsupported("thinking_token_budget", "reasoning is part of the text"),
    unsupported("lora", "adapters are not offered", is_empty),
    unsupported("mirostat", kNoSampler, is_zero),
    unsupported("dynatemp_range", kNoSampler, is_zero),
    unsupported("dry_multiplier", kNoSampler, is_zero),
    unsupported("xtc_probability", kNoSampler, is_zero),
    unsupported("top_n_sigma", kNoSampler, is_zero),
    unsupported("t_max_predict_ms", "answers are limited in tokens", is_zero),
};

}  // namespace

std::span<const Field> envelope_fields() {
  return kEnvelope;
}

}  // namespace sluice::api

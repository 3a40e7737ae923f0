#include "api/openai/completions.h"

#include <fmt/format.h>

#include "api/core/generation.h"
#include "api/fields/compress_fields.h"
#include "api/fields/sampling_fields.h"
#include "api/openai/completion_answer.h"

namespace sluice::api {

namespace {

constexpr int kDefaultMaxTokens = 16;

Status read_completion_prompts(const json::value& value, ParsedRequest& parsed) {
  return read_prompts(value, "prompt", parsed);
}

constexpr Field kCompletion[] = {
    required(used("prompt", {}, "a string, a list of strings, a list of token ids or a list of such lists",
                  read_completion_prompts)),
    unsupported("suffix", "text is generated at the end only", is_empty),
    ignored("add_generation_prompt", "has no meaning without a conversation"),
};

}  // namespace

Status read_prompts(const json::value& value, std::string_view name, ParsedRequest& parsed) {
  const auto wrong = [&] {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("'{}' must be a string, a list of strings, a list of token ids or a list of such lists",
                    name)};
  };
  if (value.is_string()) {
    parsed.prompts.emplace_back(to_text(value));
    return {};
  }
  const json::array* list = value.if_array();
  if (list == nullptr) return wrong();
  if (list->empty()) return Error{ErrorCode::InvalidArgument, fmt::format("'{}' is empty", name)};
  const auto is_token = [](const json::value& item) {
    return item.is_int64() && item.get_int64() >= 0 && item.get_int64() <= std::numeric_limits<Token>::max();
  };
  const auto are_tokens = [&](const json::value& item) {
    return item.is_array() && std::all_of(item.get_array().begin(), item.get_array().end(), is_token);
  };
  if (are_tokens(value)) {
    parsed.prompts.emplace_back(to_tokens(value));
    return {};
  }
  parsed.several_prompts = true;
  if (list->size() > GenerationLimits::prompts)
    return Error{ErrorCode::InvalidArgument, fmt::format("'{}' has {} entries; the limit is {}", name,
                                                         list->size(), GenerationLimits::prompts)};
  for (const json::value& item : *list) {
    if (item.is_string()) {
      parsed.prompts.emplace_back(to_text(item));
    } else if (are_tokens(item)) {
      parsed.prompts.emplace_back(to_tokens(item));
    } else {
      return wrong();
    }
  }
  return {};
}

const RequestSchema& completion_schema() {
  static const RequestSchema schema{"CompletionRequest",
                                    {kCompletion, model_field(), count_logprobs_fields(), sampling_fields(),
                                     speculate_field(), compress_field(), envelope_fields()}};
  return schema;
}

Reply completion(const Call& call) {
  ParsedRequest parsed;
  if (Problem problem = read_body(call, completion_schema(), parsed)) return *problem;
  if (!parsed.max_tokens) parsed.max_tokens = kDefaultMaxTokens;
  return generate(call, std::move(parsed), make_either<CompletionAnswer, CompletionStream>);
}

}  // namespace sluice::api

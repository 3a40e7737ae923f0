#include "api/core/job_line.h"

#include "api/fields/sampling_fields.h"
#include "api/openai/chat.h"
#include "api/openai/completions.h"
#include "api/prompt/messages.h"

namespace sluice::api {

namespace {

Status read_job_prompt(const json::value& value, ParsedRequest& parsed) {
  Status status = read_prompts(value, "prompt", parsed);
  if (status && parsed.several_prompts)
    return Error{ErrorCode::InvalidArgument, "'prompt' must be a string or a list of token ids", "prompt"};
  return status;
}

constexpr Field kPrompt[] = {
    used("prompt", {}, "a string or a list of token ids", read_job_prompt),
    used("messages", {Kind::List}, "a conversation, as for chats", read_messages),
};

}  // namespace

Result<ParsedRequest> read_job_line(const json::object& line) {
  static const RequestSchema schema{"JobLine",
                                    {kPrompt, conversation_fields(), sampling_fields(), speculate_field(),
                                     job_logprobs_fields(), envelope_fields()}};
  ParsedRequest parsed;
  for (std::span<const Field> group : schema.groups) {
    for (const Field& field : group) {
      if (line.contains(field.name) && schema.find(field.name) != &field) continue;
      if (Problem problem = read_object(line, {&field, 1}, parsed))
        return Error{ErrorCode::InvalidArgument, problem->message, problem->param};
    }
  }
  if (parsed.prompts.empty() && parsed.chat.messages.empty())
    return Error{ErrorCode::InvalidArgument, "'prompt' or 'messages' is missing"};
  return parsed;
}

}  // namespace sluice::api

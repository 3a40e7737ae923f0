#include "api/core/job_line.h"

#include "api/core/messages.h"
#include "api/core/sampling_fields.h"
#include "api/openai/chat.h"
#include "api/openai/completions.h"

namespace sluice::api {

namespace {

Status read_job_prompt(const json::value& value, Draft& draft) {
  Status status = read_prompts(value, "prompt", draft);
  if (status && draft.several_prompts)
    return Error{ErrorCode::InvalidArgument, "'prompt' must be a string or a list of token ids"};
  return status;
}

constexpr Field kPrompt[] = {
    used("prompt", {}, "a string or a list of token ids", read_job_prompt),
    used("messages", {Kind::List}, "a conversation, as for chats", read_messages),
};

}  // namespace

Result<Draft> read_job_line(const json::object& line) {
  Draft draft;
  for (std::span<const Field> group : {std::span<const Field>(kPrompt), conversation_fields(),
                                       sampling_fields(), job_logprobs_fields(), envelope_fields()}) {
    if (Problem problem = read_object(line, group, draft))
      return Error{ErrorCode::InvalidArgument, problem->message};
  }
  if (draft.prompts.empty() && draft.chat.messages.empty())
    return Error{ErrorCode::InvalidArgument, "'prompt' or 'messages' is missing"};
  return draft;
}

}  // namespace sluice::api

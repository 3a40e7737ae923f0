// A session as the API's functions see it, for commands that take the API's requests.
#pragma once

#include <string_view>
#include <vector>

#include "api/core/generation.h"
#include "llm/session.h"

namespace sluice::cli {

// `tool_format` names the format of calls; empty: the template's own. REQUIRES: session.has_tokenizer(), and that it outlives
// the result.
Result<api::ServedModel> served_model(const llm::Session& session, std::string_view tool_format = {});

// What prepare_draft() makes: the submission, and how its text is read.
struct PreparedDraft {
  engine::Submission submission;
  api::AnswerSetup setup;  // setup.output is null where all of the text is content
};

// A draft with one prompt or a conversation, as a server of the first model would take it. REQUIRES: !models.empty()
Result<PreparedDraft> prepare_draft(const std::vector<api::ServedModel>& models, api::ParsedRequest draft);

// The calls of an answer as OpenAI's chats have them.
json::array calls_json(const std::vector<chat::ToolCall>& calls);

}  // namespace sluice::cli

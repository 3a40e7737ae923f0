// From a draft to what an engine takes: the model, the prompt's tokens, what fits, and one submission per prompt.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/core/answer.h"
#include "api/core/service.h"
#include "api/fields/field_table.h"
#include "chat/chat_template.h"

namespace sluice::api {

struct GenerationLimits {
  static constexpr size_t prompts = 256;
  static constexpr size_t sequences = 1024;  // of all prompts together
};

// The model that the draft names; null and the problem where there is none.
const ServedModel* choose_model(const Call& call, const ParsedRequest& parsed, Problem& problem);

// The conversation through the model's chat template.
Problem render_messages(const Call& call, const ServedModel& model, const ParsedRequest& parsed,
                        chat::Rendering& out);

// What the tokens are for.
enum class Purpose : uint8_t {
  Run,   // a text whose bytes alone show that it does not fit is refused before its tokens are counted
  Show,  // any length is right
};
// The tokens of the conversation, or of each prompt. Special tokens are put around texts unless the draft says
// otherwise, and not around a template's text.
Problem encode_prompts(const Call& call, const ServedModel& model, const ParsedRequest& parsed,
                       Purpose purpose, std::vector<std::vector<Token>>& out);

// A submission of this prompt without a task.
engine::Submission make_submission(const Call& call, const ParsedRequest& parsed, std::vector<Token> prompt);

// A draft made ready for job.model: the prompts as tokens, what the text of the answers is read by, and one submission per
// prompt with its grammar. The job has no writer yet.
Problem prepare_answer(const Call& call, ParsedRequest parsed, EngineJob& job, AnswerSetup& setup);

// Takes the grammar that cannot be had from a job that only wishes for it. REQUIRES: job.first is null or settled.
void forget_failed_wish(EngineJob& job);
// The same, waiting for it.
void settle_first(EngineJob& job);

using MakeWriter = std::unique_ptr<AnswerWriter> (*)(AnswerSetup setup);
// Everything that is left to do for an operation that generates text.
Reply generate(const Call& call, ParsedRequest parsed, MakeWriter make_writer);

// The whole of such an operation.
template <class Whole, class Stream>
std::unique_ptr<AnswerWriter> make_either(AnswerSetup setup) {
  if (setup.parsed.stream) return std::make_unique<Stream>(std::move(setup));
  return std::make_unique<Whole>(std::move(setup));
}

}  // namespace sluice::api

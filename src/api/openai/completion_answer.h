// Answers of /v1/completions.
#pragma once

#include <string>
#include <vector>

#include "api/core/answer.h"
#include "api/core/answer_json.h"
#include "api/openai/openai_stream.h"

namespace sluice::api {

class CompletionAnswer : public WholeAnswer {
 public:
  using WholeAnswer::WholeAnswer;

 private:
  std::deque<Piece> pieces() const override;
  void add_choice(size_t index, size_t number, std::deque<Piece>& out) const;
};

class CompletionStream : public OpenAiStream {
 public:
  explicit CompletionStream(AnswerSetup setup);

 private:
  void begin_choice(size_t index, int choice, std::string& out) override;
  std::vector<json::object> chunks(size_t index, const AnswerDelta& delta) override;
  json::object piece(size_t index, const engine::Delta& delta);
  json::object last_piece(size_t index, const engine::ChoiceEnd& end) override;
  void add_echo(size_t index, engine::Delta& delta, CompletionLogprobs& logprobs);

  struct Progress {
    CompletionLogprobs logprobs;
    bool echoed = false;
  };
  std::vector<std::vector<request::Sampled>> prompt_logprobs_;  // per submission
  std::vector<Progress> progress_;                              // per choice of all submissions
};

}  // namespace sluice::api

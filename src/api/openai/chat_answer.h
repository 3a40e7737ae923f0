// Answers of /v1/chat/completions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "api/core/answer.h"
#include "api/core/answer_json.h"
#include "api/openai/openai_stream.h"

namespace sluice::api {

class ChatAnswer : public WholeAnswer {
 public:
  using WholeAnswer::WholeAnswer;

 private:
  std::deque<Piece> pieces() const override;
  void add_choice(size_t index, std::deque<Piece>& out) const;
};

class ChatStream : public OpenAiStream {
 public:
  explicit ChatStream(AnswerSetup setup)
      : OpenAiStream(std::move(setup), "chatcmpl-", "chat.completion.chunk") {}

 private:
  void begin_choice(size_t index, int choice, std::string& out) override;
  std::vector<json::object> chunks(size_t index, const AnswerDelta& delta) override;
  json::object last_piece(size_t index, const engine::ChoiceEnd& end) override;
};

}  // namespace sluice::api

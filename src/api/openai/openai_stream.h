// Streams of chunks as OpenAI's chats and completions send them: pieces of choices, the last of each with its reason,
// usage where asked for, [DONE].
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/core/answer.h"
#include "api/core/answer_json.h"

namespace sluice::api {

class OpenAiStream : public AnswerBase {
 public:
  OpenAiStream(AnswerSetup setup, std::string_view id_prefix, std::string_view object);
  std::string_view content_type() const final { return "text/event-stream"; }
  std::string_view ping() const final { return ": ping\n\n"; }

 protected:
  // What comes before the first piece of a choice.
  virtual void begin_choice(size_t index, int choice, std::string& out) = 0;
  // Entries of "choices", one for each chunk.
  virtual std::vector<json::object> chunks(size_t index, const AnswerDelta& delta) = 0;
  virtual json::object last_piece(size_t index, const engine::ChoiceEnd& end) = 0;

  void append_chunk(json::object choice, std::string& out);
  size_t number(size_t index, int choice) const {
    return index * static_cast<size_t>(parsed().n) + static_cast<size_t>(choice);
  }
  TokenNames names() const { return {*setup().model->tokenizer, parsed().tokens_as_ids}; }

 private:
  void on_delta(size_t index, const AnswerDelta& delta, std::string& out) final;
  void on_choice_end(size_t index, const engine::ChoiceEnd& end, std::string& out) final;
  void on_complete(std::string& out) final;
  void on_failure(const ApiError& error, std::string& out) final;
  void begin(size_t index, int choice, std::string& out);
  void append(std::string_view choices, const json::object* extra, std::string& out) const;

  std::string head_;         // of every chunk, up to the choices
  std::vector<bool> begun_;  // per choice of all submissions
  size_t open_choices_;
  json::object held_;  // the very last piece: it waits for the timings
  int generated_ = 0;
};

}  // namespace sluice::api

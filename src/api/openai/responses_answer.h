// Answers of /v1/responses: one message of one text, whole or as numbered events.
#pragma once

#include <string>
#include <vector>

#include "api/core/answer.h"
#include "api/core/answer_json.h"

namespace sluice::api {

class ResponseAnswer : public WholeAnswer {
 public:
  using WholeAnswer::WholeAnswer;

 private:
  std::string compose() const override;
};

class ResponseStream : public AnswerBase {
 public:
  using AnswerBase::AnswerBase;
  std::string_view content_type() const override { return "text/event-stream"; }
  std::string_view ping() const override { return ": ping\n\n"; }

 private:
  void begin(std::string& out);
  // An event with its type and number; `data` follows.
  void append(std::string_view type, json::object data, std::string& out);
  // The same, of the text.
  void append_part(std::string_view type, json::object data, std::string& out);
  json::object item(std::string_view status) const;
  void on_delta(size_t index, const engine::Delta& delta, std::string& out) override;
  void on_choice_end(size_t index, const engine::ChoiceEnd& end, std::string& out) override;
  void on_complete(std::string& out) override;
  void on_failure(const ApiError& error, std::string& out) override;

  bool begun_ = false;
  int64_t next_number_ = 0;
  std::string text_;
  json::array logprobs_;
  engine::ChoiceEnd end_;
};

}  // namespace sluice::api

// Answers of /v1/responses: reasoning, a message and calls, whole or as numbered events.
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

// One entry of the output: what the model thought, its message, or a call.
struct ResponseItem {
  enum class Kind : uint8_t { Reasoning, Message, Call };
  Kind kind = Kind::Message;
  std::string id;
  std::string text = {};      // of reasoning or message; of a call, its arguments
  chat::ToolCall call = {};   // name and id
  json::array logprobs = {};  // of a message
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
  // The same, of the open item.
  void append_part(std::string_view type, json::object data, std::string& out);
  // The open item of this kind; another one is ended first.
  ResponseItem& open(ResponseItem::Kind kind, std::string& out);
  void begin_item(ResponseItem item, std::string& out);
  void end_item(std::string_view status, std::string& out);
  void add(const chat::OutputPiece& piece, json::array& logprobs, std::string& out);
  void on_delta(size_t index, const AnswerDelta& delta, std::string& out) override;
  void on_choice_end(size_t index, const engine::ChoiceEnd& end, std::string& out) override;
  void on_complete(std::string& out) override;
  void on_failure(const ApiError& error, std::string& out) override;

  bool begun_ = false;
  int64_t next_number_ = 0;
  std::vector<ResponseItem> items_;
  bool is_open_ = false;  // the last item
  engine::ChoiceEnd end_;
};

}  // namespace sluice::api

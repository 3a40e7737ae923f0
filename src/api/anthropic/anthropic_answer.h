// Answers of Anthropic's /v1/messages.
#pragma once

#include <string>

#include "api/core/answer.h"
#include "api/core/answer_json.h"

namespace sluice::api {

class MessageAnswer : public WholeAnswer {
 public:
  using WholeAnswer::WholeAnswer;

 private:
  std::string compose() const override;
};

class MessageStream : public AnswerBase {
 public:
  using AnswerBase::AnswerBase;
  std::string_view content_type() const override { return "text/event-stream"; }
  std::string_view ping() const override { return "event: ping\ndata: {\"type\":\"ping\"}\n\n"; }

 private:
  enum class Block : uint8_t { None, Text, Thinking, ToolUse };
  void begin(std::string& out);
  void begin_block(Block block, json::object content, std::string& out);
  void end_block(std::string& out);
  void add(const chat::OutputPiece& piece, std::string& out);
  void append_delta(json::object delta, std::string& out);
  void on_delta(size_t index, const AnswerDelta& delta, std::string& out) override;
  void on_choice_end(size_t index, const engine::ChoiceEnd& end, std::string& out) override;
  void on_complete(std::string& out) override;
  void on_failure(const ApiError& error, std::string& out) override;

  bool begun_ = false;
  Block block_ = Block::None;  // the open one
  int blocks_ = 0;             // that were opened
  engine::ChoiceEnd end_;
};

}  // namespace sluice::api

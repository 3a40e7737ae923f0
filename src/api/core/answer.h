// What all writers of answers share: following the events of several submissions to their end, and to one error.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/core/parsed_request.h"
#include "api/core/pending_grammar.h"
#include "api/core/service.h"
#include "chat/formats/output_parser.h"
#include "compress/options.h"

namespace sluice::api {

// What became of the texts that a request wanted shorter; tokens of those texts alone.
struct CompressionReport {
  compress::Mode mode = compress::Mode::Tokens;
  int original_tokens = 0, kept_tokens = 0;
  bool cached = true;
  double seconds = 0;
  std::vector<std::string> texts;  // where the request wants them
};

struct AnswerSetup {
  ParsedRequest parsed;  // without its messages and prompts
  const ServedModel* model = nullptr;
  std::string request_id;
  int64_t created = 0;
  int64_t (*clock)() = nullptr;                      // see RequestContext
  std::string echoed;                                // of chats: the message that the answer starts with
  std::vector<std::vector<Token>> prompts;           // one per submission
  std::shared_ptr<const chat::OutputFormat> output;  // what the text is read by; null: all of it is content
  std::shared_ptr<const chat::ToolSet> tools;        // that may be called
  chat::AnswerStart start = chat::AnswerStart::Fresh;
  std::optional<CompressionReport> compression;   // where the request asked for it
  std::vector<int32_t> positions;                 // of the prompt's tokens; empty: their indices
  std::shared_ptr<const PendingGrammar> grammar;  // of the answer; null: it has none

  std::string id(std::string_view prefix) const;  // of the answer
  bool wants_logprobs() const { return parsed.logprobs_wanted || parsed.logprobs.has_value(); }
  // Nothing is generated: a token that the engine makes all the same is left out.
  bool prompt_alone() const { return parsed.max_tokens == 0; }
  int prompt_tokens() const;
};

// New tokens of a choice, and what the text means that is certain from now on.
struct AnswerDelta {
  const engine::Delta& raw;
  std::vector<chat::OutputPiece> pieces;  // every call has an id
};

class AnswerBase : public AnswerWriter {
 public:
  explicit AnswerBase(AnswerSetup setup) : setup_(std::move(setup)), open_(setup_.prompts.size()) {}

  void take(size_t index, const engine::Event& event, std::string& out) final;
  bool done() const final { return done_; }
  const ApiError* error() const final { return error_ ? &*error_ : nullptr; }
  void fail(const ApiError& error, std::string& out) final;
  void head_sent() final { started_ = true; }

 protected:
  virtual void on_delta(size_t index, const AnswerDelta& delta, std::string& out) = 0;
  virtual void on_choice_end(size_t index, const engine::ChoiceEnd& end, std::string& out) = 0;
  virtual void on_embedding(size_t /*index*/, const std::vector<float>& /*values*/) {}
  // All submissions ended well.
  virtual void on_complete(std::string& out) = 0;
  // The stream, of which something was sent, ends with an error.
  virtual void on_failure(const ApiError& error, std::string& out) = 0;

  const AnswerSetup& setup() const { return setup_; }
  const ParsedRequest& parsed() const { return setup_.parsed; }
  const engine::Usage& usage() const { return usage_; }        // of all submissions that have ended
  const engine::Timings& timings() const { return timings_; }  // of the slowest
  int reasoning_tokens() const { return reasoning_tokens_; }   // so far, of all choices
  // Whether the choice has called a tool.
  bool has_called(size_t index, int choice) const;

 private:
  // The text of one choice, as it is read.
  struct Reader {
    std::unique_ptr<chat::OutputParser> parser;
    int calls = 0;
  };
  Reader& reader(size_t index, int choice);
  void read_delta(size_t index, const engine::Delta& delta, std::string& out);
  void read_end(size_t index, const engine::ChoiceEnd& end, std::string& out);
  std::vector<chat::OutputPiece> shown(Reader& reader, size_t index, int choice,
                                       std::vector<chat::OutputPiece> pieces) const;
  void finish(const engine::Finished& finished, std::string& out);

  AnswerSetup setup_;
  size_t open_;
  std::map<std::pair<size_t, int>, Reader> readers_;  // by submission and choice; none where all is content
  int reasoning_tokens_ = 0;
  engine::Usage usage_;
  engine::Timings timings_;
  bool started_ = false, done_ = false;
  std::optional<ApiError> error_;
};

// A part of an answer's text, made when it is sent.
using Piece = std::function<void(std::string& out)>;

// An answer that is sent when it is complete.
class WholeAnswer : public AnswerBase {
 public:
  explicit WholeAnswer(AnswerSetup setup)
      : AnswerBase(std::move(setup)), parts_(this->setup().prompts.size()) {}
  std::string_view content_type() const override { return "application/json"; }
  bool has_more() const final { return !pieces_.empty(); }
  void next_piece(std::string& out) final;

 protected:
  struct Choice {
    std::string text, reasoning;
    std::vector<chat::ToolCall> calls;
    std::vector<request::Sampled> tokens;
    engine::ChoiceEnd end;
  };
  struct Part {  // of one submission
    std::vector<Choice> choices;
    std::vector<request::Sampled> prompt_logprobs;
    std::vector<float> embedding;
  };
  // The text of the answer in pieces; of most answers there is one.
  virtual std::deque<Piece> pieces() const {
    return {[this](std::string& out) { out += compose(); }};
  }
  virtual std::string compose() const { return {}; }
  const std::vector<Part>& parts() const { return parts_; }

 private:
  Choice& choice(size_t index, int number);
  void on_delta(size_t index, const AnswerDelta& delta, std::string& out) final;
  void on_choice_end(size_t index, const engine::ChoiceEnd& end, std::string& out) final;
  void on_embedding(size_t index, const std::vector<float>& values) final {
    parts_[index].embedding = values;
  }
  void on_complete(std::string& out) final;
  void on_failure(const ApiError& error, std::string& out) final;

  std::vector<Part> parts_;
  std::deque<Piece> pieces_;  // that have not been asked for
};

}  // namespace sluice::api

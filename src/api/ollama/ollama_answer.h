// Answers of Ollama's /api: one object, or a line per piece.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "api/core/answer.h"
#include "api/core/answer_json.h"

namespace sluice::api {

enum class OllamaForm : uint8_t {
  Chat,       // {"message": {role, content}}
  Generate,   // {"response": text}
  Embed,      // {"embeddings": [[...]]}
  Embedding,  // {"embedding": [...]}
};

// Since 1970, in UTC, with as many digits as the fraction needs: "2023-11-14T22:13:20.25Z".
std::string to_rfc3339(std::chrono::nanoseconds time);
// What the clock of a request says, else its second.
std::chrono::nanoseconds wall_time(int64_t (*clock)(), int64_t seconds);

class OllamaAnswer : public WholeAnswer {
 public:
  OllamaAnswer(AnswerSetup setup, OllamaForm form) : WholeAnswer(std::move(setup)), form_(form) {}

 private:
  std::string compose() const override;
  OllamaForm form_;
};

class OllamaStream : public AnswerBase {
 public:
  OllamaStream(AnswerSetup setup, OllamaForm form) : AnswerBase(std::move(setup)), form_(form) {}
  std::string_view content_type() const override { return "application/x-ndjson"; }

 private:
  void append_line(json::object line, const std::vector<request::Sampled>& tokens, std::string& out) const;
  void on_delta(size_t index, const AnswerDelta& delta, std::string& out) override;
  void on_choice_end(size_t index, const engine::ChoiceEnd& end, std::string& out) override;
  void on_complete(std::string& out) override;
  void on_failure(const ApiError& error, std::string& out) override;

  OllamaForm form_;
  engine::ChoiceEnd end_;
  std::vector<chat::ToolCall> calls_;  // sent together at the end
};

class OllamaEmbeddings : public WholeAnswer {
 public:
  OllamaEmbeddings(AnswerSetup setup, OllamaForm form) : WholeAnswer(std::move(setup)), form_(form) {}

 private:
  std::string compose() const override;
  OllamaForm form_;
};

template <OllamaForm form>
std::unique_ptr<AnswerWriter> make_ollama_writer(AnswerSetup setup) {
  if (setup.parsed.stream) return std::make_unique<OllamaStream>(std::move(setup), form);
  return std::make_unique<OllamaAnswer>(std::move(setup), form);
}
template <OllamaForm form>
std::unique_ptr<AnswerWriter> make_ollama_embeddings(AnswerSetup setup) {
  return std::make_unique<OllamaEmbeddings>(std::move(setup), form);
}

}  // namespace sluice::api

// A model ready to answer: weights, tokenizer, chat template and a running engine.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "chat/chat_prompt.h"
#include "chat/chat_template.h"
#include "engine/engine.h"
#include "engine/text_stream.h"
#include "llm/engine_flags.h"
#include "models/model.h"
#include "runtime/model_executor.h"
#include "tokenizer/tokenizer.h"

namespace sluice::llm {

struct SessionOptions {
  std::string model;    // path or name; empty: the default model
  std::string amateur;  // second model of contrastive decoding; empty: none
  bool needs_tokenizer = true;
  EngineFlags engine;
  engine::QueueLimits queue;
  std::function<void(float)> progress;  // called with the share of the weights that is loaded; may be empty
};

class Session {
 public:
  static Result<std::unique_ptr<Session>> open(const SessionOptions& options);
  ~Session();

  engine::Engine& engine() { return *engine_; }
  const models::Model& model() const { return *model_; }
  // REQUIRES: has_tokenizer()
  const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
  bool has_tokenizer() const { return tokenizer_.has_value(); }
  bool has_chat_template() const { return chat_template_.has_value(); }
  // REQUIRES: has_chat_template()
  const chat::ChatTemplate& chat_template() const { return *chat_template_; }
  const EngineSetup& setup() const { return setup_; }
  // What the model's makers sample it with.
  const request::SamplingDefaults& defaults() const { return defaults_; }

  // Plain text, with the tokens that the model expects around a text.
  Result<std::vector<Token>> encode_text(std::string_view text) const;
  // A conversation through the model's chat template.
  Result<std::vector<Token>> encode_chat(chat::ChatPrompt prompt) const;

  // Positions left for an answer to a prompt of this length.
  int room_after(size_t prompt_tokens) const { return setup_.context - static_cast<int>(prompt_tokens); }

 private:
  Session() = default;
  Status load_text(const std::string& path);
  Result<chat::Rendering> render(chat::ChatPrompt prompt) const;

  std::unique_ptr<models::Model> model_, contrast_;
  std::optional<tokenizer::Tokenizer> tokenizer_;
  std::optional<chat::ChatTemplate> chat_template_;
  EngineSetup setup_;
  request::SamplingDefaults defaults_;
  std::unique_ptr<runtime::ModelExecutor> executor_;
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace sluice::llm

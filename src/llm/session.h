// A model ready to answer: weights, tokenizer, chat template and a running engine. This header is installed together with
// what it includes; the types that it only declares have their headers in the source tree.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace sluice::chat {
class ChatTemplate;
struct ChatPrompt;
}  // namespace sluice::chat
namespace sluice::engine {
class Engine;
class PictureReader;
}  // namespace sluice::engine
namespace sluice::grammar {
class GrammarStore;
}
namespace sluice::models {
struct Model;
}
namespace sluice::request {
struct Constraint;
struct Request;
struct SamplingDefaults;
}  // namespace sluice::request
namespace sluice::tokenizer {
class Tokenizer;
}

namespace sluice::llm {

struct EngineSetup;
struct PromptFlags;
struct SamplingFlags;
struct SessionOptions;

// "name=value" each: the flags of the program without their dashes. Names that the call does not have are errors.
using Settings = std::vector<std::string>;

struct Message {
  std::string role, content;
};

// Gets the text in pieces of whole characters, and about twenty times a second an empty piece while none comes. False ends
// the answer.
using OnText = std::function<bool(std::string_view)>;

struct Answer {
  enum class End : uint8_t {
    Stop,       // the model ended it, or a stop string
    Length,     // max-tokens, or the context is full
    Cancelled,  // by OnText
  };
  std::string text;
  End end = End::Stop;
  int prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  // Seconds: until it started, until its first token, the mean gap between tokens, in all.
  double queue_s = 0, first_token_s = 0, per_token_s = 0, total_s = 0;
};

// Thread-safe: any number of threads may call a session at once, and their answers are computed in one batch. It is
// destroyed when no call runs. Whatever goes wrong in a call, memory that is short included, is its error; an exception of
// OnText is one too.
class Session {
 public:
  // The model is a file, a folder or a name that the model store knows; empty: the default model. Settings are the engine's:
  // ctx-size, kv-tokens, max-seqs, device, threads and so on.
  static Result<std::unique_ptr<Session>> open(const std::string& model, const Settings& settings = {});
  static Result<std::unique_ptr<Session>> open(const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Answers a prompt. It goes through the model's chat template where there is one and "raw=on" is not set; "system=TEXT" is
  // the message before it, and "image=FILE" a picture that it is about. The other settings are those of sampling: max-tokens, temperature, top-k, top-p, min-p,
  // repeat-penalty, seed, stop, ignore-eos.
  Result<Answer> generate(std::string_view prompt, const Settings& settings = {}, const OnText& on_text = {});
  // Answers a conversation; settings of sampling alone.
  Result<Answer> chat(const std::vector<Message>& messages, const Settings& settings = {},
                      const OnText& on_text = {});
  // The vector of a text: "pooling=mean" or "last", "normalize=on" or "off".
  Result<std::vector<float>> embed(std::string_view text, const Settings& settings = {});

  // "special=on": text that spells a special token becomes that token; "add-special=on": with the tokens that the model
  // expects around a text.
  Result<std::vector<Token>> tokenize(std::string_view text, const Settings& settings = {}) const;
  // "skip-special=on" leaves special tokens out.
  Result<std::string> detokenize(const std::vector<Token>& tokens, const Settings& settings = {}) const;

  // -- the parts, for those who build on them

  engine::Engine& engine();
  const models::Model& model() const;
  bool has_tokenizer() const;
  // REQUIRES: has_tokenizer()
  const tokenizer::Tokenizer& tokenizer() const;
  bool has_chat_template() const;
  // REQUIRES: has_chat_template()
  const chat::ChatTemplate& chat_template() const;
  // Null where the model reads text alone.
  const engine::PictureReader* pictures() const;
  const EngineSetup& setup() const;
  // What the model's makers sample it with.
  const request::SamplingDefaults& defaults() const;
  // Compiled grammars; null where the model has no tokenizer.
  grammar::GrammarStore* grammars() const;
  // The grammar of a constraint, for as long as it is held: Submission::kept.
  Result<std::shared_ptr<const void>> compile(const request::Constraint& constraint) const;

  // Plain text, with the tokens that the model expects around a text.
  Result<std::vector<Token>> encode_text(std::string_view text) const;
  // A conversation through the model's chat template.
  Result<std::vector<Token>> encode_chat(chat::ChatPrompt prompt) const;
  // What generate() makes of a prompt: its tokens and its pictures.
  Result<request::Request> encode_prompt(std::string_view prompt, const PromptFlags& flags) const;
  // Answers these tokens. REQUIRES: has_tokenizer()
  Result<Answer> answer(std::vector<Token> prompt, const SamplingFlags& flags, const OnText& on_text);
  // Answers what encode_prompt made. REQUIRES: has_tokenizer()
  Result<Answer> answer(request::Request prompt, const SamplingFlags& flags, const OnText& on_text);

  // Positions left for an answer to a prompt of this length.
  int room_after(size_t prompt_tokens) const;

 private:
  struct Parts;
  explicit Session(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace sluice::llm

// Texts of a prompt made shorter before the model reads them.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/interrupt.h"
#include "base/result.h"
#include "base/sha256.h"
#include "chat/chat_template.h"
#include "compress/options.h"
#include "compress/selection.h"
#include "engine/engine.h"
#include "grammar/grammar_store.h"
#include "tokenizer/tokenizer.h"

namespace sluice::compress {

struct Text {
  std::string_view text;          // valid UTF-8
  std::vector<ByteRange> marked;  // stay byte by byte
  ByteRange question;             // the part that asks; stays, too
};

// For whom the models work.
struct Caller {
  std::string client;
  double weight = 1;
  int priority = 0;
  std::string cache_salt;          // results are shared between equal ones
  Interrupt* interrupt = nullptr;  // may stop the work; null: nothing does
};

struct Task {
  Options options;
  std::vector<Text> texts;
  Caller caller;
};

struct Compressed {
  std::vector<std::string> texts;  // one for each of the task's
  int original_tokens = 0, kept_tokens = 0;
  bool cached = false;  // all of it was done before
  double seconds = 0;
};

// Of Mode::Prefill.
struct KeptTokens {
  std::vector<int32_t> kept;                 // indices of the prompt's tokens, ascending
  int original_tokens = 0, kept_tokens = 0;  // of the texts
  std::string text;                          // what is kept of them
  bool cached = false;
  double seconds = 0;
};

class PromptCompressor {
 public:
  virtual ~PromptCompressor() = default;
  // Thread-safe; blocks. Unavailable where too many are being compressed. Of any mode but Mode::Prefill.
  virtual Result<Compressed> compress(const Task& task) = 0;
  // The same for Mode::Prefill: which tokens of a prompt that holds the task's texts are run.
  virtual Result<KeptTokens> keep_tokens(const Task& task, std::span<const Token> prompt);
};

// A running model as this layer sees it. What it points to outlives the compressor.
struct Model {
  engine::Engine* engine = nullptr;
  const tokenizer::Tokenizer* tokenizer = nullptr;
  const chat::ChatTemplate* chat_template = nullptr;  // null: prompts are plain text
  grammar::GrammarStore* grammars = nullptr;          // null: Mode::Extract is refused
  int context = 0;                                    // positions
  bool takes_positions = false;                       // tokens may be at positions with gaps between them
};

struct CompressorLimits {
  int at_once = 3;                        // tasks; more are refused
  size_t cache_bytes = size_t{16} << 20;  // of kept results
  int text_tokens = 1 << 18;              // of one task
};

// Results by content, the least recently used ones dropped first. Thread-safe.
class ResultCache {
 public:
  explicit ResultCache(size_t bytes) : limit_(bytes) {}
  bool find(const Sha256Digest& key, std::string& out);
  void put(const Sha256Digest& key, const std::string& text);
  size_t bytes() const;

 private:
  using Entry = std::pair<Sha256Digest, std::string>;
  static size_t bytes_of(const Entry& entry) { return sizeof(Entry) + 128 + entry.second.size(); }

  const size_t limit_;
  mutable std::mutex mutex_;
  size_t bytes_ = 0;
  std::list<Entry> used_;  // last used first
  std::map<Sha256Digest, std::list<Entry>::iterator> by_key_;
};

class ModelCompressor : public PromptCompressor {
 public:
  // `target` is the model that the prompts are for: it counts, summarises and extracts. `scorer` says how likely texts are;
  // it may be the same.
  ModelCompressor(Model target, Model scorer, CompressorLimits limits = {});

  Result<Compressed> compress(const Task& task) override;
  Result<KeptTokens> keep_tokens(const Task& task, std::span<const Token> prompt) override;

 private:
  Result<KeptTokens> choose_tokens(const Task& task, std::span<const Token> prompt);
  Result<Compressed> compress_texts(const Task& task);
  Result<std::string> shorten(const Task& task, const Text& text, int budget);

  const Model target_, scorer_;
  const CompressorLimits limits_;
  ResultCache cache_;
  std::atomic<int> running_{0};
};

}  // namespace sluice::compress

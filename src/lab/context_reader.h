// A model that reads a text context by context and gives the logits of the second half of each.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "lab/perplexity.h"
#include "runtime/model_runner.h"

namespace sluice::lab {

// -log of softmax(logits)[token]
double surprise(std::span<const float> logits, Token token);

// Contexts that a text of so many tokens is cut into, or why there is none.
Result<int> contexts_of(const models::Model& model, size_t tokens, const PerplexityOptions& options);

std::vector<Token> context_at(std::span<const Token> text, int index, const PerplexityOptions& options);

// Has room for one context.
class ContextReader {
 public:
  static Result<ContextReader> make(const models::Model& model, const PerplexityOptions& options);

  void run(std::span<const Token> context);
  // Logits of the context that was run, of positions [from, to).
  std::span<const float> logits(int from, int to);
  // Logits and the token that follows, of each position that is scored.
  void for_rows(std::span<const Token> context, FunctionRef<void(std::span<const float>, Token)> visit);

 private:
  std::unique_ptr<runtime::ModelRunner> runner_;
  runtime::ModelRunner::Rows rows_;
  std::vector<BlockId> table_;
  int groups_ = 0;
  int64_t vocab_ = 0;
};

inline constexpr int kRowsAtOnce = 32;  // of logits that are held

}  // namespace sluice::lab

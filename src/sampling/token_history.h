// What a sequence has said so far, as the penalties and bad words need it: counts kept up to date token by
// token, which can be taken back when tokens turn out to be rejected.
#pragma once

#include <cstddef>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"

namespace sluice::sampling {

struct TokenCount {
  Token token = 0;
  int output = 0;          // occurrences among the generated tokens
  bool in_prompt = false;  // only where the history was told to count the prompt
};

class TokenHistory {
 public:
  struct Needs {
    bool prompt_counts = false;  // the prompt takes part in counts()
    bool output_counts = false;  // the generated tokens do
    size_t tail = 0;             // tokens of the prompt that ends_with() can look back on
  };
  TokenHistory(std::span<const Token> prompt, Needs needs);

  void append(Token token);
  // Takes back the last `count` generated tokens. REQUIRES: count <= output().size()
  void rollback(size_t count);

  std::span<const Token> output() const { return std::span(tokens_).subspan(tail_); }
  // One entry per distinct token; tokens that were taken back may remain with an output of 0.
  std::span<const TokenCount> counts() const { return counts_; }
  // Whether prompt and output together end with these tokens.
  bool ends_with(std::span<const Token> suffix) const;

 private:
  TokenCount& count_of(Token token);

  std::vector<Token> tokens_;  // the tail of the prompt, then the generated tokens
  size_t tail_ = 0;
  bool count_output_ = false;
  std::vector<TokenCount> counts_;
  std::unordered_map<Token, size_t> slots_;  // token -> index in counts_
};

}  // namespace sluice::sampling

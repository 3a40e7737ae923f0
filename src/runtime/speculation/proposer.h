// Guesses which tokens follow a sequence. Guesses are verified by the model: a wrong one costs time, never a byte.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "runtime/speculation/answer_pool.h"

namespace sluice::runtime {

class Proposer {
 public:
  virtual ~Proposer() = default;
  virtual std::unique_ptr<Proposer> clone() const = 0;

  virtual void append(std::span<const Token> tokens) = 0;
  // Writes at most `most` tokens. Returns how many tokens at the end of the sequence the guess was found by, 0 where there
  // is none: the longer, the likelier it is right.
  virtual int propose(int most, std::vector<Token>& drafts) = 0;
  // After append(): of the drafts that came behind a wrong one, each with the token that the model found likeliest behind
  // it.
  struct Seen {
    Token draft = 0, likeliest = 0;
  };
  virtual void observe(std::span<const Seen>) {}
};

// What came after the last earlier occurrence of the sequence's last two to four tokens, the longest that occurred.
std::unique_ptr<Proposer> make_ngram_proposer();
// What came after the last earlier occurrence of the longest end of the sequence that occurred at all, in the sequence
// itself or, where that is longer, in earlier answers. `pool` may be null.
std::unique_ptr<Proposer> make_suffix_proposer(std::shared_ptr<const AnswerPool::Text> pool = nullptr);
// Jacobi iteration: what the model found likeliest behind each draft of the last step, right or wrong, is the next guess.
// A pool of pairs of tokens that followed each other, in the text or in its opinion, fills the rest of the window.
std::unique_ptr<Proposer> make_lookahead_proposer();

}  // namespace sluice::runtime

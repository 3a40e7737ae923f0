// Guesses which tokens follow a sequence. Guesses are verified by the model: a wrong one costs time, never a byte.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"

namespace sluice::runtime {

class Proposer {
 public:
  virtual ~Proposer() = default;
  virtual std::unique_ptr<Proposer> clone() const = 0;

  virtual void append(std::span<const Token> tokens) = 0;
  // Writes at most `most` tokens. Returns how many tokens at the end of the sequence the guess was found by, 0 where there
  // is none: the longer, the likelier it is right.
  virtual int propose(int most, std::vector<Token>& drafts) = 0;
};

// What came after the last earlier occurrence of the sequence's last two to four tokens, the longest that occurred.
std::unique_ptr<Proposer> make_ngram_proposer();
// What came after the last earlier occurrence of the longest end of the sequence that occurred at all.
std::unique_ptr<Proposer> make_suffix_proposer();

}  // namespace sluice::runtime

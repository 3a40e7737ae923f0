// The suffix automaton of a growing sequence of tokens: knows, at every moment, the longest end of the sequence that has
// occurred before, and where. Amortized constant time and memory for each token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace sluice::runtime {

class SuffixAutomaton {
 public:
  SuffixAutomaton();

  void append(Token token);

  // The longest end of the sequence that also ends at an earlier position.
  struct Match {
    int length = 0;  // 0: there is none
    size_t end = 0;  // tokens up to and with its last occurrence but the present one
  };
  const Match& longest_repeat() const { return repeat_; }

  // The longest end of another text that occurs in this one, found token by token. Stays valid while this one grows.
  struct Cursor {
    int32_t state = 0;
    int length = 0;
  };
  void advance(Cursor& cursor, Token token) const;
  // Tokens up to and with an occurrence. REQUIRES: cursor.length > 0
  size_t end_of(const Cursor& cursor) const { return states_[static_cast<size_t>(cursor.state)].end; }
  std::span<const Token> tokens() const { return tokens_; }
  size_t states() const { return states_.size(); }

 private:
  using State = int32_t;
  struct Node {
    int32_t length = 0;  // of its longest string
    State link = -1;     // whose strings are the longest ends of this one's that occur elsewhere too
    uint32_t end = 0;    // of an occurrence: a late one, see append()
    std::vector<std::pair<Token, State>> next;  // by token
  };
  State follow(State from, Token token) const;
  void set_next(State from, Token token, State to);
  State split(State from, State to, Token token);

  std::vector<Token> tokens_;
  std::vector<Node> states_;
  State whole_ = 0;  // of the sequence itself
  Match repeat_;
};

}  // namespace sluice::runtime

// Stop strings in a stream of text, wherever the cuts between its parts fall.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::chat {

struct StopLimits {
  static constexpr size_t strings = 16;
  static constexpr size_t bytes = 256;  // of one string
};

// An Aho-Corasick automaton over the bytes of the strings. The string that is complete first wins; of those
// complete at the same byte, the longest. Text that may turn out to be the start of a stop string is held
// back, so that no part of one is ever given out.
class StopMatcher {
 public:
  // Errors: more strings or longer strings than StopLimits, or an empty string.
  static Result<StopMatcher> make(std::span<const std::string> strings);

  struct Step {
    std::string text;  // certain to come before any stop string
    std::optional<size_t>
        stopped_by;  // index of the string that ended the text; the matcher then ignores what follows
  };
  Step push(std::string_view text);
  // What was held back: at the end of a stream it is text after all.
  std::string finish();
  void reset();
  bool empty() const { return automaton_->lengths.empty(); }
  // What the copies share.
  size_t bytes() const { return automaton_->bytes(); }

 private:
  // States are the prefixes of the strings, the empty one first. Edges are the children of a trie, kept as lists: there
  // are no more branches than strings. Copies of a matcher share it.
  struct Automaton {
    using State = uint16_t;
    static constexpr State none = 0;  // of children and siblings: the empty prefix is neither
    static_assert(StopLimits::strings * StopLimits::bytes < 65535);

    explicit Automaton(std::span<const std::string> strings);
    // The child by a byte; none where there is none.
    State child(State state, char byte) const;
    // The longest prefix that the text ends with after one more byte.
    State next(State state, char byte) const;
    size_t bytes() const { return nodes.size() * sizeof(Node) + lengths.size() * sizeof(size_t); }

    struct Node {
      State first_child = none, sibling = none;
      State suffix = 0;     // the longest proper suffix that is a state
      uint16_t depth = 0;   // bytes of the prefix
      int16_t output = -1;  // the longest string that ends here, or -1
      char byte = 0;        // the last one
    };
    std::vector<Node> nodes;
    std::vector<size_t> lengths;  // of the strings

   private:
    State add(State parent, char byte);
    void link_suffixes();
  };
  explicit StopMatcher(std::span<const std::string> strings);

  std::shared_ptr<const Automaton> automaton_;
  uint16_t state_ = 0;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace sluice::chat

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

namespace sluice::text {

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

 private:
  // Up to 4 MiB, which the copies of a matcher share.
  struct Automaton {
    static constexpr int alphabet = 256;
    explicit Automaton(std::span<const std::string> strings);

    std::vector<int32_t> next;    // [states * alphabet], the next state
    std::vector<int32_t> depth;   // bytes of the longest prefix of a string that ends here
    std::vector<int32_t> output;  // the longest string that ends here, or -1
    std::vector<size_t> lengths;
  };
  explicit StopMatcher(std::span<const std::string> strings);

  std::shared_ptr<const Automaton> automaton_;
  int32_t state_ = 0;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace sluice::text

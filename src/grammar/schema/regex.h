// Regular expressions of JSON schemas: ECMA-262 with the u flag, searched for anywhere in a string.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "unicode/pattern.h"

namespace sluice::grammar {

// May be used by many threads at once.
class Regex {
 public:
  // Errors: syntax, and what cannot be said in the matcher's own syntax.
  static Result<Regex> compile(std::string_view source);

  // Whether the pattern is found somewhere in the text, which is valid UTF-8. Errors: more match steps than the limit.
  Result<bool> search(std::string_view text) const;

 private:
  explicit Regex(unicode::Pattern pattern) : pattern_(std::move(pattern)) {}

  unicode::Pattern pattern_;
};

// The same pattern for a matcher that takes the whole string: .* where it is not anchored. Empty where it has anchors,
// looks around, or refers back in places where that matcher would pass over them.
std::string as_whole_match(std::string_view pattern);

// Where the pattern is one character class or escape, repeated, between anchors (^[a-z]+$), the same with as many
// repetitions as the bounds allow: ^[a-z]{2,8}$. Empty where it has another shape.
std::string with_length_bounds(std::string_view pattern, int64_t least, int64_t most);

}  // namespace sluice::grammar

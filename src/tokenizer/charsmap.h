// The normalization table of SentencePiece: a trie of byte strings in one array of words, and their
// replacements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::tokenizer {

// The blob comes from files: every index into it is checked, and a walk takes at most one step per byte of
// the key.
class Charsmap {
 public:
  // Errors: a blob whose parts do not fit, or replacements that are not UTF-8.
  static Result<Charsmap> parse(std::string_view blob);

  struct Match {
    size_t size = 0;  // bytes of the key; 0 for no match
    std::string_view replacement;
  };
  // Of the strings that `text` starts with.
  Match longest(std::string_view text) const { return walk(text, true); }
  Match shortest(std::string_view text) const { return walk(text, false); }

 private:
  Match walk(std::string_view text, bool wants_longest) const;
  std::string_view replacement(uint32_t offset) const;

  std::vector<uint32_t> units_;
  std::string replacements_;  // each ends with a zero byte
};

// Errors: characters outside of the alphabet, or a wrong length.
Result<std::string> decode_base64(std::string_view text, std::string_view what);

}  // namespace sluice::tokenizer

// Cutting a normalized text into the words that the model of a tokenizer sees one by one.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "unicode/aligned_text.h"
#include "unicode/pattern.h"

namespace sluice::tokenizer {

// What becomes of the matches of a pattern.
enum class SplitBehavior : uint8_t { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

struct SplitStep {
  unicode::Pattern pattern;
  SplitBehavior behavior = SplitBehavior::Isolated;
  bool is_inverted = false;  // what lies between the matches counts as the matches
};

// Runs of digits are cut into groups of three from the right.
struct DigitGroupStep {
  unicode::CategorySet digits = 0;
  bool isolates = true;         // a run is cut off from what is around it
  bool needs_word_end = false;  // runs that a word character follows stay whole
};

// Pieces of so many characters.
struct FixedLengthStep {
  size_t length = 0;
};

// Puts `prefix` before words that do not start with it.
struct PrefixStep {
  std::string prefix;
  bool only_at_start = false;  // of the input
};

struct ReplaceStep {
  char32_t from = 0;
  std::string to;
};

// Each byte becomes the printable character that byte-level vocabularies are written in.
struct MapBytesStep {};

using PreTokenizerStep =
    std::variant<SplitStep, DigitGroupStep, FixedLengthStep, PrefixStep, ReplaceStep, MapBytesStep>;

struct Words {
  unicode::AlignedText text;
  std::vector<unicode::TextRange> ranges;
};

// REQUIRES: valid UTF-8. Empty words are left out.
Result<Words> pre_tokenize(const std::vector<PreTokenizerStep>& steps, unicode::AlignedText text,
                           bool is_at_start, unicode::EncodeGuard* guard = nullptr);

// The alphabet of byte-level vocabularies (GPT-2): printable Latin-1 stands for itself, the rest for U+0100
// and up.
char32_t byte_to_character(unsigned char byte);
// -1 where the character is not of the alphabet
int character_to_byte(char32_t code);
// The bytes that a byte-level token stands for; false, with `out` undefined, where it has other characters.
bool decode_byte_level(std::string_view spelling, std::string& out);

}  // namespace sluice::tokenizer

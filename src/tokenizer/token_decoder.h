// How the spellings of tokens become text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "unicode/pattern.h"

namespace sluice::tokenizer {

// Steps on one token. `is_first` is the first token of a text.
struct DecodeBytes {};  // the byte-level alphabet, where all of the token is in it
struct DecodeMetaspace {
  std::string mark;
  bool drops_first = true;  // marks of the first token are not spaces
};
struct DecodeWordPiece {
  std::string prefix;  // of continuations; other tokens but the first get a space
  bool cleans_up = true;
};
struct DecodeByteFallback {};  // <0x00> to <0xFF>
struct DecodeStrip {
  char32_t content = ' ';
  size_t start = 0, stop = 0;  // at most so many at the ends
};
struct DecodeReplace {
  unicode::Pattern pattern;
  std::string content;
};
// A suffix ends a word: a space follows, except at the end of the text.
struct DecodeWordSuffix {
  std::string suffix;
};
// Repeated tokens count once, padding goes, the delimiter is a space.
struct DecodeCtc {
  std::string pad, delimiter;
  bool cleans_up = true;
};
// Tokens without any decoder are joined with spaces.
struct DecodeJoined {};

using DecoderStep = std::variant<DecodeBytes, DecodeMetaspace, DecodeWordPiece, DecodeByteFallback,
                                 DecodeStrip, DecodeReplace, DecodeWordSuffix, DecodeCtc, DecodeJoined>;

struct TokenDecoder {
  std::vector<DecoderStep> steps;      // on each token
  bool keeps_added = false;            // added tokens stand for their spelling
  std::optional<DecodeStrip> trimmed;  // on the whole text
  bool drops_repeats = false;          // a token that equals the one before it gives nothing
  std::string word_suffix;             // the space of a token that ends so is dropped at the end of the text
};

// The bytes of a token. Errors: the match limit of a pattern.
Result<std::string> render_token(const TokenDecoder& decoder, std::string_view spelling, bool is_first);

// The byte of "<0x41>", or -1.
int parse_byte_token(std::string_view spelling);

}  // namespace sluice::tokenizer

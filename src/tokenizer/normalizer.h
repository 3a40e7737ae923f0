// Rewriting a text before it is cut into words.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tokenizer/charsmap.h"
#include "unicode/aligned_text.h"
#include "unicode/normal_form.h"
#include "unicode/pattern.h"
#include "unicode/unicode.h"

namespace sluice::tokenizer {

struct Lowercase {};
struct RemoveCategories {
  unicode::CategorySet set = 0;
};
struct StripSpaces {
  bool left = false, right = false;
};
struct ReplacePattern {
  unicode::Pattern pattern;
  std::string content;
};
struct Prepend {
  std::string prefix;  // of every text that is not empty
};
// BERT's cleaning: control characters go, white space becomes a space.
struct CleanText {};
// BERT puts spaces around each Chinese character.
struct SpaceChinese {};
// The control and space rules of SentencePiece's "nmt" tables.
struct NmtRules {};
struct MapBytes {};
// As tokenizer.json means it: by grapheme cluster, then by character, with the shortest key.
struct PrecompiledClusters {
  std::shared_ptr<const Charsmap> map;
  unicode::Pattern cluster;  // \X
};
// As SentencePiece does it: the longest key at each place, then its rules for spaces.
struct PrecompiledPrefixes {
  std::shared_ptr<const Charsmap> map;  // may be null
  bool adds_prefix = true;              // a space before the text
  bool merges_spaces = true;            // runs of spaces become one, none at the ends
  bool space_is_suffix = false;
};

using NormalizerStep =
    std::variant<unicode::UnicodeForm, Lowercase, RemoveCategories, StripSpaces, ReplacePattern, Prepend,
                 CleanText, SpaceChinese, NmtRules, MapBytes, PrecompiledClusters, PrecompiledPrefixes>;

// REQUIRES: valid UTF-8, which the result is too. Errors: the match limit of a pattern, and those of the guard, which may
// be null.
Result<unicode::AlignedText> normalize(const std::vector<NormalizerStep>& steps, unicode::AlignedText text,
                                       unicode::EncodeGuard* guard = nullptr);

}  // namespace sluice::tokenizer

// Rewriting a text before it is cut into words.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/aligned_text.h"
#include "text/charsmap.h"
#include "text/pattern.h"
#include "text/unicode.h"

namespace sluice::text {

enum class UnicodeForm : uint8_t { Nfc, Nfd, Nfkc, Nfkd };

struct Lowercase {};
struct RemoveCategories {
  CategorySet set = 0;
};
struct StripSpaces {
  bool left = false, right = false;
};
struct ReplacePattern {
  Pattern pattern;
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
  Pattern cluster;  // \X
};
// As SentencePiece does it: the longest key at each place, then its rules for spaces.
struct PrecompiledPrefixes {
  std::shared_ptr<const Charsmap> map;  // may be null
  bool adds_prefix = true;              // a space before the text
  bool merges_spaces = true;            // runs of spaces become one, none at the ends
  bool space_is_suffix = false;
};

using NormalizerStep =
    std::variant<UnicodeForm, Lowercase, RemoveCategories, StripSpaces, ReplacePattern, Prepend, CleanText,
                 SpaceChinese, NmtRules, MapBytes, PrecompiledClusters, PrecompiledPrefixes>;

// REQUIRES: valid UTF-8, which the result is too. Errors: the match limit of a pattern, and those of the guard, which may
// be null.
Result<AlignedText> normalize(const std::vector<NormalizerStep>& steps, AlignedText text,
                              EncodeGuard* guard = nullptr);

// One of the normal forms (Unicode annex 15).
AlignedText to_unicode_form(const AlignedText& text, UnicodeForm form);

}  // namespace sluice::text

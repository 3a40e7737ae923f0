// A text cut into words and sentences, and which of its words must stay as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::compress {

struct ByteRange {
  size_t begin = 0, end = 0;

  size_t size() const { return end - begin; }
  bool overlaps(const ByteRange& other) const { return begin < other.end && other.begin < end; }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// Why a word must stay, the strongest reason last.
enum class Protection : uint8_t {
  None,
  Entity,  // a name: one place of each name stays
  Number,
  Quote,
  Code,    // between back quotes, or spelled like an identifier, a path or an address
  Marked,  // by whoever asks
};

// A word behind the white space that separates it from the one before. A character of a script that has no spaces is a
// word of its own. White space at the end of a text is a word without letters.
struct Word {
  ByteRange bytes;        // the white space included; words cover the text without gaps
  size_t text_begin = 0;  // behind the white space
  Protection protection = Protection::None;
  bool mark_covers_space = false;  // a marked span holds the white space, too

  ByteRange text() const { return {text_begin, bytes.end}; }
};

// Words [first, end).
struct Sentence {
  size_t first = 0, end = 0;
};

struct TextUnits {
  std::vector<Word> words;
  std::vector<Sentence> sentences;  // cover the words without gaps
};

// REQUIRES: valid UTF-8, and spans within the text.
TextUnits split_text(std::string_view text, std::span<const ByteRange> marked = {});

// A word without the punctuation around it: what names are compared by.
std::string_view bare(std::string_view word);

// The end of a text that asks something: its last lines or its last sentence, at most about 400 bytes. Empty where the text
// is no longer than that itself, or ends in something longer.
ByteRange question_of(std::string_view text);

}  // namespace sluice::compress

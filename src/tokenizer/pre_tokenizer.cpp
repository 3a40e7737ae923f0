#include "tokenizer/pre_tokenizer.h"

#include <array>

namespace sluice::tokenizer {

namespace {

struct ByteAlphabet {
  std::array<uint16_t, 256> characters{};
  std::array<int16_t, 0x144> bytes{};
};

constexpr ByteAlphabet byte_alphabet = [] {
  ByteAlphabet alphabet;
  alphabet.bytes.fill(-1);
  uint16_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const auto character = is_printable ? static_cast<uint16_t>(byte) : next++;
    alphabet.characters[byte] = character;
    alphabet.bytes[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}();

// What a step may ask besides the words.
struct Surroundings {
  bool is_at_start;
  unicode::EncodeGuard* guard;  // may be null
};

// A stretch of a text that matched a pattern, or lies between two matches.
struct Segment {
  unicode::TextRange range;
  bool is_match;
};

// As the folds of the reference define the behaviors: a match joins a neighbour unless that is a match too.
std::vector<Segment> join(const std::vector<Segment>& segments, SplitBehavior behavior) {
  std::vector<Segment> joined;
  bool previous_match = false;
  for (const Segment& segment : segments) {
    const bool joins = behavior == SplitBehavior::Contiguous ? segment.is_match == previous_match
                                                             : segment.is_match && !previous_match;
    previous_match = segment.is_match;
    if (joins && !joined.empty()) {
      joined.back().range = {std::min(joined.back().range.begin, segment.range.begin),
                             std::max(joined.back().range.end, segment.range.end)};
    } else {
      joined.push_back({segment.range, false});
    }
  }
  return joined;
}

void push_word(std::vector<unicode::TextRange>& out, unicode::TextRange range) {
  if (range.begin < range.end) out.push_back(range);
}

// Cuts the word the finder searches into `take(range, is_match)`, in order; what lies between matches may be empty.
template <class Take>
Status cut_at_matches(unicode::Pattern::Finder& finder, unicode::TextRange word, const Take& take) {
  uint32_t previous = word.begin;
  while (true) {
    const auto match = finder.next();
    if (!match) return match.error();
    if (!match->has_value()) break;
    const unicode::TextRange range{word.begin + static_cast<uint32_t>((*match)->begin),
                                   word.begin + static_cast<uint32_t>((*match)->end)};
    take(unicode::TextRange{previous, range.begin}, false);
    take(range, true);
    previous = range.end;
  }
  take(unicode::TextRange{previous, word.end}, false);
  return {};
}

Status isolate(unicode::Pattern::Finder& finder, unicode::TextRange word,
               std::vector<unicode::TextRange>& out) {
  return cut_at_matches(finder, word, [&](unicode::TextRange range, bool) { push_word(out, range); });
}

Result<std::vector<Segment>> find_segments(unicode::Pattern::Finder& finder, unicode::TextRange word,
                                           bool is_inverted) {
  std::vector<Segment> segments;
  Status status = cut_at_matches(finder, word, [&](unicode::TextRange range, bool is_match) {
    if (is_match || range.begin < range.end) segments.push_back({range, is_match != is_inverted});
  });
  if (!status) return status.error();
  return segments;
}

Status apply(const SplitStep& step, Words& words, Surroundings around) {
  std::vector<unicode::TextRange> out;
  out.reserve(words.ranges.size() + words.text.size() / 4);
  unicode::Pattern::Finder finder(step.pattern, around.guard);
  for (const unicode::TextRange word : words.ranges) {
    finder.reset(words.text.bytes(word));
    if (step.behavior == SplitBehavior::Isolated) {
      if (Status status = isolate(finder, word, out); !status) return status;
      continue;
    }
    auto segments = find_segments(finder, word, step.is_inverted);
    if (!segments) return segments.error();
    if (step.behavior == SplitBehavior::MergedWithNext) {
      std::reverse(segments->begin(), segments->end());
      *segments = join(*segments, step.behavior);
      std::reverse(segments->begin(), segments->end());
    } else if (step.behavior != SplitBehavior::Removed) {
      *segments = join(*segments, step.behavior);
    }
    for (const Segment& segment : *segments) {
      if (!segment.is_match) push_word(out, segment.range);
    }
  }
  words.ranges = std::move(out);
  return {};
}

// Where the digits that begin at `begin` end, and how many there are.
std::pair<uint32_t, uint32_t> digit_run(std::string_view text, uint32_t begin, unicode::CategorySet digits) {
  uint32_t count = 0;
  while (begin < text.size()) {
    const unicode::Decoded next = unicode::decode_utf8(text, begin);
    if (!unicode::in(next.code, digits)) break;
    begin += next.size;
    ++count;
  }
  return {begin, count};
}

void group_digits(const DigitGroupStep& step, std::string_view text, unicode::TextRange word,
                  std::vector<unicode::TextRange>& out) {
  uint32_t cut = 0;
  const auto cut_at = [&](uint32_t position) {
    push_word(out, {word.begin + cut, word.begin + position});
    cut = position;
  };
  for (uint32_t position = 0; position < text.size();) {
    auto [end, left] = digit_run(text, position, step.digits);
    if (left == 0) {
      position += unicode::decode_utf8(text, position).size;
      continue;
    }
    const bool is_word =
        end < text.size() && unicode::is_word_character(unicode::decode_utf8(text, end).code);
    const bool is_grouped = !(step.needs_word_end && is_word);
    if (is_grouped && step.isolates) cut_at(position);
    for (; position < end; --left) {
      if (is_grouped && left % 3 == 0) cut_at(position);
      position += unicode::decode_utf8(text, position).size;
    }
    if (is_grouped && step.isolates) cut_at(end);
  }
  cut_at(static_cast<uint32_t>(text.size()));
}

Status apply(const DigitGroupStep& step, Words& words, Surroundings) {
  std::vector<unicode::TextRange> out;
  for (const unicode::TextRange word : words.ranges) group_digits(step, words.text.bytes(word), word, out);
  words.ranges = std::move(out);
  return {};
}

Status apply(const FixedLengthStep& step, Words& words, Surroundings) {
  std::vector<unicode::TextRange> out;
  for (const unicode::TextRange word : words.ranges) {
    const std::string_view text = words.text.bytes(word);
    for (size_t begin = 0; begin < text.size();) {
      size_t end = begin;
      for (size_t count = 0; count < step.length && end < text.size(); ++count)
        end += unicode::decode_utf8(text, end).size;
      out.push_back({word.begin + static_cast<uint32_t>(begin), word.begin + static_cast<uint32_t>(end)});
      begin = end;
    }
  }
  words.ranges = std::move(out);
  return {};
}

// Writes each word anew with `write(text, word, out)`.
template <class Write>
void rewrite(Words& words, const Write& write) {
  Words out{unicode::AlignedText(words.text.is_tracked()), {}};
  out.text.reserve(words.text.size() + words.text.size() / 4);
  for (const unicode::TextRange word : words.ranges) {
    const auto begin = static_cast<uint32_t>(out.text.size());
    write(words.text, word, out.text);
    push_word(out.ranges, {begin, static_cast<uint32_t>(out.text.size())});
  }
  words = std::move(out);
}

Status apply(const PrefixStep& step, Words& words, Surroundings around) {
  rewrite(words, [&](const unicode::AlignedText& text, unicode::TextRange word, unicode::AlignedText& out) {
    const bool is_wanted = !step.only_at_start || (around.is_at_start && word.begin == 0);
    if (is_wanted && !text.bytes(word).starts_with(step.prefix)) {
      out.append(step.prefix, text.origin({word.begin, word.begin}));
    }
    out.append(text, word);
  });
  return {};
}

Status apply(const ReplaceStep& step, Words& words, Surroundings) {
  rewrite(words, [&](const unicode::AlignedText& text, unicode::TextRange word, unicode::AlignedText& out) {
    for (uint32_t position = word.begin; position < word.end;) {
      const unicode::Decoded next = unicode::decode_utf8(text.bytes(), position);
      const unicode::TextRange character{position, position + next.size};
      if (next.code == step.from) {
        out.append(step.to, text.origin(character));
      } else {
        out.append(text, character);
      }
      position = character.end;
    }
  });
  return {};
}

Status apply(const MapBytesStep&, Words& words, Surroundings) {
  rewrite(words, [&](const unicode::AlignedText& text, unicode::TextRange word, unicode::AlignedText& out) {
    std::string character;
    for (uint32_t position = word.begin; position < word.end; ++position) {
      character.clear();
      unicode::append_utf8(character, byte_to_character(static_cast<unsigned char>(text.bytes()[position])));
      out.append(character, text.origin({position, position + 1}));
    }
  });
  return {};
}

}  // namespace

char32_t byte_to_character(unsigned char byte) {
  return byte_alphabet.characters[byte];
}

int character_to_byte(char32_t code) {
  return code < byte_alphabet.bytes.size() ? byte_alphabet.bytes[code] : -1;
}

bool decode_byte_level(std::string_view spelling, std::string& out) {
  out.clear();
  for (size_t position = 0; position < spelling.size();) {
    const unicode::Decoded next = unicode::decode_utf8(spelling, position);
    const int byte = character_to_byte(next.code);
    if (byte < 0) return false;
    out += static_cast<char>(byte);
    position += next.size;
  }
  return true;
}

Result<Words> pre_tokenize(const std::vector<PreTokenizerStep>& steps, unicode::AlignedText text,
                           bool is_at_start, unicode::EncodeGuard* guard) {
  Words words{std::move(text), {}};
  push_word(words.ranges, {0, static_cast<uint32_t>(words.text.size())});
  for (const PreTokenizerStep& step : steps) {
    const Status status = std::visit(
        [&](const auto& chosen) {
          return apply(chosen, words, {is_at_start, guard});
        },
        step);
    if (!status) return status.error();
  }
  return words;
}

}  // namespace sluice::tokenizer

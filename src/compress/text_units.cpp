#include "compress/text_units.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "unicode/unicode.h"

namespace sluice::compress {

namespace {

constexpr size_t kLongSentence = 80;  // words; longer ones are cut
constexpr size_t kLongQuote = 300;    // bytes; what is longer is not taken for a quotation
constexpr size_t kLongQuestion = 400, kShortQuestion = 24;

bool is_space(char32_t code) {
  return code == ' ' || (code >= '\t' && code <= '\r') || code == 0xA0 || code == 0x3000 || code == 0x2028 ||
         code == 0x2029;
}
// Han, kana: written without spaces.
bool stands_alone(char32_t code) {
  return (code >= 0x3041 && code <= 0x30FF) || (code >= 0x3400 && code <= 0x9FFF) ||
         (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x20000 && code <= 0x3FFFF);
}
bool is_upper(char32_t code) {
  const unicode::Category category = unicode::category(code);
  return category == unicode::Category::Lu || category == unicode::Category::Lt;
}
bool is_lower(char32_t code) {
  return unicode::category(code) == unicode::Category::Ll;
}
bool is_letter(char32_t code) {
  return is_upper(code) || is_lower(code) || unicode::category(code) == unicode::Category::Lo ||
         unicode::category(code) == unicode::Category::Lm;
}
bool is_digit(char32_t code) {
  return unicode::category(code) == unicode::Category::Nd;
}

std::vector<Word> split_words(std::string_view text) {
  std::vector<Word> words;
  size_t at = 0;
  while (at < text.size()) {
    Word word{.bytes = {at, at}};
    for (unicode::Decoded next; at < text.size(); at += next.size) {
      next = unicode::decode_utf8(text, at);
      if (!is_space(next.code)) break;
    }
    word.text_begin = at;
    for (unicode::Decoded next; at < text.size(); at += next.size) {
      next = unicode::decode_utf8(text, at);
      if (is_space(next.code)) break;
      if (stands_alone(next.code) && at > word.text_begin) break;
      if (at > word.text_begin && stands_alone(unicode::decode_utf8_before(text, at).code) &&
          is_letter(next.code))
        break;
    }
    word.bytes.end = at;
    words.push_back(word);
  }
  return words;
}

void protect(std::vector<Word>& words, ByteRange range, Protection why) {
  auto word = std::partition_point(words.begin(), words.end(),
                                   [&](const Word& w) { return w.bytes.end <= range.begin; });
  for (; word != words.end() && word->bytes.begin < range.end; ++word) {
    const bool in_text = word->text().overlaps(range), in_space = range.begin < word->text_begin;
    if (!in_text && why != Protection::Marked) continue;
    word->protection = std::max(word->protection, why);
    if (why == Protection::Marked && in_space) word->mark_covers_space = true;
  }
}

// Between back quotes: blocks of three or more, and code within a line.
void protect_code(std::string_view text, std::vector<Word>& words) {
  for (size_t at = text.find('`'); at != std::string_view::npos; at = text.find('`', at)) {
    const size_t ticks = std::min(text.find_first_not_of('`', at), text.size()) - at;
    const std::string fence(ticks, '`');
    const size_t end = text.find(fence, at + ticks);
    const bool closed = end != std::string_view::npos;
    const bool in_line = ticks < 3;
    if (!closed && in_line) return;
    if (in_line && text.substr(at, end - at).find("\n\n") != std::string_view::npos) {
      at += ticks;
      continue;
    }
    const size_t behind = closed ? end + ticks : text.size();
    protect(words, {at, behind}, Protection::Code);
    at = behind;
  }
}

// Pairs of quotation marks within a paragraph.
void protect_quotes(std::string_view text, std::vector<Word>& words) {
  struct Pair {
    std::string_view open, close;
  };
  constexpr std::array<Pair, 4> kPairs{{{"\"", "\""}, {"“", "”"}, {"«", "»"}, {"「", "」"}}};
  for (const Pair& pair : kPairs) {
    size_t at = text.find(pair.open);
    while (at != std::string_view::npos) {
      const size_t inside = at + pair.open.size();
      const size_t close = text.find(pair.close, inside);
      if (close == std::string_view::npos) break;
      const bool apart = text.substr(inside, close - inside).find("\n\n") != std::string_view::npos;
      if (apart || close - at > kLongQuote) {  // no pair: the second may open one
        at = text.find(pair.open, inside);
        continue;
      }
      protect(words, {at, close + pair.close.size()}, Protection::Quote);
      at = text.find(pair.open, close + pair.close.size());
    }
  }
}

bool is_spelled_like_code(std::string_view word) {
  constexpr std::string_view kSigns = "_{}=<>\\@#$|";
  if (word.find_first_of(kSigns) != std::string_view::npos) return true;
  for (const std::string_view mark : {"::", "()", "://", "->"})
    if (word.find(mark) != std::string_view::npos) return true;
  const std::string_view inner = bare(word);
  if (inner.find('/') != std::string_view::npos && inner.size() > 3) return true;
  bool after_lower = false;  // camelCase
  for (size_t at = 0; at < inner.size();) {
    const unicode::Decoded next = unicode::decode_utf8(inner, at);
    if (after_lower && is_upper(next.code)) return true;
    after_lower = is_lower(next.code);
    at += next.size;
  }
  return false;
}

bool has_digit(std::string_view word) {
  for (size_t at = 0; at < word.size();) {
    const unicode::Decoded next = unicode::decode_utf8(word, at);
    if (is_digit(next.code)) return true;
    at += next.size;
  }
  return false;
}

bool is_capitalised(std::string_view word) {
  return !word.empty() && is_upper(unicode::decode_utf8(word, 0).code);
}
bool is_acronym(std::string_view word) {
  return word.size() >= 2 && std::all_of(word.begin(), word.end(), [](char c) {
           return (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '&';
         });
}

// Names: words with a capital that do not begin a sentence, and the same words where they do.
void protect_names(std::string_view text, TextUnits& units) {
  std::unordered_set<std::string_view> names;
  const auto word_text = [&](const Word& word) {
    return bare(text.substr(word.text_begin, word.text().size()));
  };
  std::vector<bool> begins(units.words.size());
  for (const Sentence& sentence : units.sentences) begins[sentence.first] = true;
  for (size_t i = 0; i < units.words.size(); ++i) {
    const std::string_view word = word_text(units.words[i]);
    const bool is_name = is_acronym(word) || (!begins[i] && is_capitalised(word) && word.size() > 1);
    if (is_name) names.insert(word);
  }
  for (Word& word : units.words)
    if (names.contains(word_text(word))) word.protection = std::max(word.protection, Protection::Entity);
}

bool is_abbreviation(std::string_view word) {
  constexpr std::array<std::string_view, 18> kKnown{"Mr.", "Mrs.", "Ms.",  "Dr.",  "Prof.", "St.",
                                                    "Jr.", "Sr.",  "vs.",  "etc.", "e.g.",  "i.e.",
                                                    "cf.", "No.",  "Fig.", "al.",  "Inc.",  "approx."};
  if (std::find(kKnown.begin(), kKnown.end(), word) != kKnown.end()) return true;
  return word.size() == 2 && is_upper(static_cast<unsigned char>(word[0]));  // an initial
}

// Without the quotation marks and brackets that close behind a full stop.
std::string_view without_closing(std::string_view word) {
  constexpr std::array<std::string_view, 8> kClosing{"\"", "'", ")", "]", "”", "’", "»", "*"};
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view mark : kClosing) {
      if (!word.ends_with(mark)) continue;
      word.remove_suffix(mark.size());
      found = true;
    }
  }
  return word;
}

bool ends_sentence(std::string_view text, const Word& word, const Word& next) {
  const std::string_view gap = text.substr(next.bytes.begin, next.text_begin - next.bytes.begin);
  if (std::count(gap.begin(), gap.end(), '\n') >= 2) return true;
  const std::string_view last = without_closing(text.substr(word.text_begin, word.text().size()));
  for (const std::string_view stop : {"。", "！", "？"})
    if (last.ends_with(stop)) return true;
  if (next.text().size() == 0) return false;
  const char32_t first = unicode::decode_utf8(text, next.text_begin).code;
  if (gap.find('\n') != std::string_view::npos && !is_lower(first)) return true;
  if (last.empty() || gap.empty() || is_lower(first)) return false;
  if (last.back() == '!' || last.back() == '?') return true;
  if (last.ends_with("…")) return true;
  return last.back() == '.' && !is_abbreviation(last);
}

std::vector<Sentence> split_sentences(std::string_view text, const std::vector<Word>& words) {
  std::vector<Sentence> sentences;
  size_t first = 0;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const bool is_long = i + 1 - first >= kLongSentence;
    // A block of code or a marked span is one thing.
    const bool within =
        words[i].protection == words[i + 1].protection &&
        (words[i].protection == Protection::Code || words[i].protection == Protection::Marked);
    if (!is_long && (within || !ends_sentence(text, words[i], words[i + 1]))) continue;
    sentences.push_back({first, i + 1});
    first = i + 1;
  }
  if (first < words.size()) sentences.push_back({first, words.size()});
  return sentences;
}

}  // namespace

std::string_view bare(std::string_view word) {
  constexpr std::string_view kAround = ".,;:!?()[]{}\"'*`";
  const size_t begin = word.find_first_not_of(kAround);
  if (begin == std::string_view::npos) return {};
  word = word.substr(begin, word.find_last_not_of(kAround) + 1 - begin);
  if (word.ends_with("'s")) word.remove_suffix(2);
  if (word.ends_with("’s")) word.remove_suffix(std::string_view("’s").size());
  return word;
}

TextUnits split_text(std::string_view text, std::span<const ByteRange> marked) {
  TextUnits units{.words = split_words(text), .sentences = {}};
  for (Word& word : units.words) {
    const std::string_view spelled = text.substr(word.text_begin, word.text().size());
    if (is_spelled_like_code(spelled)) {
      word.protection = Protection::Code;
    } else if (has_digit(spelled)) {
      word.protection = Protection::Number;
    }
  }
  protect_code(text, units.words);
  protect_quotes(text, units.words);
  for (const ByteRange& range : marked) protect(units.words, range, Protection::Marked);
  units.sentences = split_sentences(text, units.words);
  protect_names(text, units);
  return units;
}

ByteRange question_of(std::string_view text) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  if (last == std::string_view::npos) return {};
  // Lines from the end, until there is enough of them to be a question.
  size_t begin = last + 1;
  while (begin > 0 && last + 1 - begin < kShortQuestion) {
    const size_t line = text.find_last_of('\n', begin - 1);
    begin = line == std::string_view::npos ? 0 : line;
  }
  if (begin > 0 && text.size() - begin <= kLongQuestion) return {begin, text.size()};
  const TextUnits units = split_text(text.substr(text.size() - std::min(text.size(), 2 * kLongQuestion)));
  if (units.sentences.size() < 2) return {};
  const size_t offset = text.size() - std::min(text.size(), 2 * kLongQuestion);
  begin = offset + units.words[units.sentences.back().first].bytes.begin;
  if (text.size() - begin > kLongQuestion) return {};
  return {begin, text.size()};
}

}  // namespace sluice::compress

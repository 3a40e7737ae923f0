#include "unicode/char_class.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace sluice::unicode {

namespace {

// The Han script.
constexpr std::pair<char32_t, char32_t> han[] = {
    {0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},   {0x3007, 0x3007},
    {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},
    {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3}, {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739},
    {0x2B740, 0x2B81D}, {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2F800, 0x2FA1D}, {0x30000, 0x3134A},
    {0x31350, 0x323AF},
};

struct NamedSet {
  std::string_view name;
  CategorySet set;
};
constexpr NamedSet named_sets[] = {
    {"L", sets::letters},         {"M", sets::marks},
    {"N", sets::numbers},         {"P", sets::punctuation},
    {"S", sets::symbols},         {"Z", set_of(Category::Zl, Category::Zp, Category::Zs)},
    {"Ll", set_of(Category::Ll)}, {"Lm", set_of(Category::Lm)},
    {"Lo", set_of(Category::Lo)}, {"Lt", set_of(Category::Lt)},
    {"Lu", set_of(Category::Lu)}, {"Mc", set_of(Category::Mc)},
    {"Me", set_of(Category::Me)}, {"Mn", set_of(Category::Mn)},
    {"Nd", set_of(Category::Nd)}, {"Nl", set_of(Category::Nl)},
    {"No", set_of(Category::No)}, {"Pc", set_of(Category::Pc)},
    {"Pd", set_of(Category::Pd)}, {"Sc", set_of(Category::Sc)},
    {"Sk", set_of(Category::Sk)}, {"Sm", set_of(Category::Sm)},
    {"So", set_of(Category::So)},
};
constexpr CategorySet all_categories = (CategorySet{1} << 30) - 1;

// \p{Name} or \P{Name}, `position` behind the letter.
bool parse_property(std::string_view pattern, size_t& position, bool is_negative, CharClass& out) {
  if (pattern.substr(position, 1) != "{") return false;
  const size_t close = pattern.find('}', position);
  if (close == std::string_view::npos) return false;
  const std::string_view name = pattern.substr(position + 1, close - position - 1);
  position = close + 1;
  if (name == "Han" && !is_negative) {
    for (const auto& [first, last] : han) out.add_range(first, last);
    return true;
  }
  const auto* found = std::find_if(std::begin(named_sets), std::end(named_sets),
                                   [&](const NamedSet& entry) { return entry.name == name; });
  if (found == std::end(named_sets)) return false;
  out.add_categories(is_negative ? all_categories & ~found->set : found->set);
  return true;
}

// The character that an escape stands for, where it stands for one.
std::optional<char32_t> escaped_character(char letter) {
  switch (letter) {
    case 'r':
      return '\r';
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    default:
      break;
  }
  const auto byte = static_cast<unsigned char>(letter);
  if (byte < 128 && is_ascii_punctuation(byte)) return byte;
  if (letter == ' ') return ' ';
  return std::nullopt;
}

void add_word_characters(CharClass& out) {
  out.add_categories(word_categories);
  for (const auto& [first, last] : other_word_characters) out.add_range(first, last);
}

// \xHH, \x{H...} or \uHHHH, `position` behind the letter.
bool parse_hexadecimal(std::string_view pattern, size_t& position, char letter,
                       std::optional<char32_t>& single) {
  size_t size = letter == 'x' ? 2 : 4;
  const bool has_braces = letter == 'x' && pattern.substr(position, 1) == "{";
  if (has_braces) {
    ++position;
    size = std::min(pattern.find('}', position), pattern.size()) - position;
  }
  uint32_t code = 0;
  const std::string_view digits = pattern.substr(std::min(position, pattern.size()), size);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.empty() || code > 0x10FFFF)
    return false;
  position += digits.size() + (has_braces ? 1 : 0);
  single = code;
  return true;
}

// After the backslash. Sets `single` where the escape is one character (it may start a range).
bool parse_escape(std::string_view pattern, size_t& position, CharClass& out,
                  std::optional<char32_t>& single) {
  if (position >= pattern.size()) return false;
  const char letter = pattern[position++];
  single = escaped_character(letter);
  if (single) return true;
  switch (letter) {
    case 's':
      out.add_whitespace();
      return true;
    case 'S':
      out.add_not_whitespace();
      return true;
    case 'd':
      out.add_categories(set_of(Category::Nd));
      return true;
    case 'w':
      add_word_characters(out);
      return true;
    case 'x':
    case 'u':
      return parse_hexadecimal(pattern, position, letter, single);
    case 'p':
      return parse_property(pattern, position, false, out);
    case 'P':
      return parse_property(pattern, position, true, out);
    default:
      return false;
  }
}

bool parse_bracket(std::string_view pattern, size_t& position, bool ignores_case, CharClass& out);

// A member of a bracket: a character, a range, an escape, or "&&[...]".
bool parse_member(std::string_view pattern, size_t& position, bool ignores_case, CharClass& out) {
  if (pattern.substr(position, 3) == "&&[") {
    position += 2;
    CharClass other;
    if (!parse_bracket(pattern, position, ignores_case, other)) return false;
    out.intersect(std::move(other));
    return pattern.substr(position, 1) == "]";
  }
  if (pattern[position] == '[') return false;
  const auto character = [&](std::optional<char32_t>& single) {
    if (position >= pattern.size()) return false;
    if (pattern[position] == '\\') return parse_escape(pattern, ++position, out, single);
    const Decoded decoded = decode_utf8(pattern, position);
    position += decoded.size;
    single = decoded.code;
    return true;
  };
  std::optional<char32_t> first;
  if (!character(first)) return false;
  const bool is_range = first && pattern.substr(position, 1) == "-" && pattern.substr(position + 1, 1) != "]";
  if (!is_range) {
    if (first) out.add(*first);
    return true;
  }
  ++position;
  std::optional<char32_t> last;
  if (!character(last) || !last || *last < *first) return false;
  out.add_range(*first, *last);
  return true;
}

bool parse_bracket(std::string_view pattern, size_t& position, bool ignores_case, CharClass& out) {
  if (pattern.substr(position, 1) != "[") return false;
  ++position;
  const bool is_negative = pattern.substr(position, 1) == "^";
  if (is_negative) ++position;
  const size_t begin = position;
  while (position < pattern.size() && (pattern[position] != ']' || position == begin)) {
    if (!parse_member(pattern, position, ignores_case, out)) return false;
  }
  if (position >= pattern.size()) return false;
  ++position;
  if (ignores_case) out.ignore_case();
  if (is_negative) out.negate();
  out.finish();
  return true;
}

}  // namespace

void CharClass::ignore_case() {
  const size_t count = ranges_.size();
  for (size_t i = 0; i < count; ++i) {
    const auto [first, last] = ranges_[i];
    for (char32_t upper = 'A'; upper <= 'Z'; ++upper) {
      const char32_t lower = upper + 32;
      const bool has = (upper >= first && upper <= last) || (lower >= first && lower <= last);
      if (!has) continue;
      add(upper);
      add(lower);
      if (lower == 's') add(0x17F);   // long s
      if (lower == 'k') add(0x212A);  // Kelvin
    }
  }
}

bool CharClass::contains_slowly(char32_t code) const {
  bool found = in(code, categories_);
  if (!found && (whitespace_ || not_whitespace_)) found = is_whitespace(code) ? whitespace_ : not_whitespace_;
  if (!found) {
    const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), code,
                                        [](char32_t key, const auto& range) { return key < range.first; });
    found = after != ranges_.begin() && code <= std::prev(after)->second;
  }
  if (found && other_ != nullptr) found = other_->contains(code);
  return found != negated_;
}

void CharClass::finish() {
  std::sort(ranges_.begin(), ranges_.end());
  size_t kept = 0;
  for (size_t i = 1; i < ranges_.size(); ++i) {
    if (ranges_[i].first <= ranges_[kept].second) {
      ranges_[kept].second = std::max(ranges_[kept].second, ranges_[i].second);
    } else {
      ranges_[++kept] = ranges_[i];
    }
  }
  if (!ranges_.empty()) ranges_.resize(kept + 1);
  for (char32_t code = 0; code < 128; ++code) ascii_[code] = contains_slowly(code);
}

bool parse_char_class(std::string_view pattern, size_t& position, bool ignores_case, CharClass& out) {
  if (position >= pattern.size()) return false;
  const char first = pattern[position];
  if (first == '[') return parse_bracket(pattern, position, ignores_case, out);
  std::optional<char32_t> single;
  if (first == '\\') {
    if (!parse_escape(pattern, ++position, out, single)) return false;
  } else if (std::string_view("()|?*+{}^$.").find(first) != std::string_view::npos) {
    return false;
  } else {
    const Decoded decoded = decode_utf8(pattern, position);
    position += decoded.size;
    single = decoded.code;
  }
  if (single) out.add(*single);
  if (ignores_case) out.ignore_case();
  out.finish();
  return true;
}

}  // namespace sluice::unicode

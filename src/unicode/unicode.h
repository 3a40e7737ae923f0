// Code points: UTF-8, general categories, case. Tables come from tools/make_unicode_tables.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace sluice::unicode {

inline constexpr char32_t replacement_character = 0xFFFD;
inline constexpr std::string_view replacement_bytes = "\xEF\xBF\xBD";

// A code point and the bytes it takes.
struct Decoded {
  char32_t code = 0;
  uint32_t size = 1;
};

// REQUIRES: position < text.size(), and text is valid UTF-8 (see to_valid_utf8): a cut character would be
// read wrong, but never beyond the text.
inline Decoded decode_utf8(std::string_view text, size_t position) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t left = text.size() - position;
  if (first < 0xE0 && left >= 2) return {(first & 0x1FU) << 6 | (byte(1) & 0x3FU), 2};
  if (first < 0xF0 && left >= 3)
    return {(first & 0x0FU) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU), 3};
  if (left >= 4) {
    return {(first & 0x07U) << 18 | (byte(1) & 0x3FU) << 12 | (byte(2) & 0x3FU) << 6 | (byte(3) & 0x3FU), 4};
  }
  return {replacement_character, 1};
}

// The code point that ends before `position`. REQUIRES: 0 < position <= text.size().
inline Decoded decode_utf8_before(std::string_view text, size_t position) {
  size_t begin = position - 1;
  while (begin > 0 && position - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80)
    --begin;
  return {decode_utf8(text.substr(0, position), begin).code, static_cast<uint32_t>(position - begin)};
}

void append_utf8(std::string& out, char32_t code);

// In the order of the generated table.
enum class Category : uint8_t {
  Cn,
  Cc,
  Cf,
  Co,
  Cs,
  Ll,
  Lm,
  Lo,
  Lt,
  Lu,
  Mc,
  Me,
  Mn,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Pe,
  Pf,
  Pi,
  Po,
  Ps,
  Sc,
  Sk,
  Sm,
  So,
  Zl,
  Zp,
  Zs,
};

// Sets of categories as bits.
using CategorySet = uint32_t;
constexpr CategorySet set_of(Category category) {
  return CategorySet{1} << static_cast<int>(category);
}
template <class... More>
constexpr CategorySet set_of(Category first, More... more) {
  return set_of(first) | set_of(more...);
}
namespace sets {
inline constexpr CategorySet letters =
    set_of(Category::Ll, Category::Lm, Category::Lo, Category::Lt, Category::Lu);
inline constexpr CategorySet marks = set_of(Category::Mc, Category::Me, Category::Mn);
inline constexpr CategorySet numbers = set_of(Category::Nd, Category::Nl, Category::No);
inline constexpr CategorySet punctuation =
    set_of(Category::Pc, Category::Pd, Category::Pe, Category::Pf, Category::Pi, Category::Po, Category::Ps);
inline constexpr CategorySet symbols = set_of(Category::Sc, Category::Sk, Category::Sm, Category::So);
// Control, format, surrogate and private use; not what is unassigned.
inline constexpr CategorySet others = set_of(Category::Cc, Category::Cf, Category::Co, Category::Cs);
}  // namespace sets

Category category(char32_t code);
inline bool in(char32_t code, CategorySet set) {
  return (set >> static_cast<int>(category(code)) & 1) != 0;
}

// The White_Space property.
inline bool is_whitespace(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}
inline bool is_ascii_punctuation(char32_t code) {
  return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
         (code >= '{' && code <= '~');
}
// \w: alphabetic characters (circled letters too), marks, decimal numbers, connectors, joiners.
inline constexpr CategorySet word_categories =
    sets::letters | sets::marks | set_of(Category::Nd, Category::Nl, Category::Pc);
inline constexpr std::pair<char32_t, char32_t> other_word_characters[] = {
    {0x200C, 0x200D}, {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
bool is_word_character(char32_t code);

// The lower case of one code point; U+0130 is the only one that takes two (see append_lower).
char32_t to_lower(char32_t code);
void append_lower(std::string& out, char32_t code);
// The other case of one code point, which may take up to three.
std::u32string to_full_lower(char32_t code);
std::u32string to_full_upper(char32_t code);

// Of one step, for the normal forms: 0 where there is none.
int combining_class(char32_t code);
struct Decomposition {
  const uint32_t* parts = nullptr;
  int count = 0;  // 0: does not decompose
  bool is_compatibility = false;
};
Decomposition decompose_once(char32_t code);
// 0 where the pair does not compose
char32_t compose(char32_t first, char32_t second);

}  // namespace sluice::unicode

#include "unicode/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace sluice::unicode {

namespace {

#include "unicode/tables.inc"

constexpr int block_bits = 7;
constexpr char32_t code_limit = 0x110000;

constexpr auto category_index = [] {
  std::array<uint8_t, (code_limit >> block_bits)> index{};
  size_t at = 0;
  for (size_t run = 0; run + 1 < std::size(category_runs); run += 2) {
    for (int i = 0; i < category_runs[run]; ++i) index[at++] = static_cast<uint8_t>(category_runs[run + 1]);
  }
  return index;
}();
static_assert(category_block_count <= 256);
static_assert(sizeof(category_blocks) - 1 == size_t{category_block_count} << block_bits);

// The row of `width` numbers in a sorted table whose first number is the last one <= key; nullptr before the
// first.
template <class T, size_t N>
const T* last_row_at(const T (&table)[N], size_t width, T key) {
  size_t low = 0;
  size_t high = N / width;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (table[middle * width] <= key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low == 0 ? nullptr : table + (low - 1) * width;
}

template <size_t N>
char32_t shift_case(const int32_t (&ranges)[N], char32_t code) {
  const auto value = static_cast<int32_t>(code);
  const int32_t* row = last_row_at(ranges, 4, value);
  const bool is_moved = row != nullptr && value <= row[1] && (value - row[0]) % row[2] == 0;
  return is_moved ? static_cast<char32_t>(value + row[3]) : code;
}

constexpr char32_t hangul_base = 0xAC00, hangul_l = 0x1100, hangul_v = 0x1161, hangul_t = 0x11A7;
constexpr uint32_t hangul_l_count = 19, hangul_v_count = 21, hangul_t_count = 28;

char32_t compose_hangul(char32_t first, char32_t second) {
  if (first >= hangul_l && first < hangul_l + hangul_l_count && second >= hangul_v &&
      second < hangul_v + hangul_v_count) {
    return hangul_base + ((first - hangul_l) * hangul_v_count + (second - hangul_v)) * hangul_t_count;
  }
  const bool is_lv = first >= hangul_base &&
                     first < hangul_base + hangul_l_count * hangul_v_count * hangul_t_count &&
                     (first - hangul_base) % hangul_t_count == 0;
  if (is_lv && second > hangul_t && second < hangul_t + hangul_t_count) return first + (second - hangul_t);
  return 0;
}

}  // namespace

void append_utf8(std::string& out, char32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

Category category(char32_t code) {
  if (code >= code_limit) return Category::Cn;
  const size_t block = category_index[code >> block_bits];
  return static_cast<Category>(category_blocks[block << block_bits | (code & ((1U << block_bits) - 1))] -
                               'A');
}

bool is_word_character(char32_t code) {
  if (in(code, word_categories)) return true;
  return std::any_of(std::begin(other_word_characters), std::end(other_word_characters),
                     [&](const auto& range) { return code >= range.first && code <= range.second; });
}

char32_t to_lower(char32_t code) {
  if (code < 0x80) return code >= 'A' && code <= 'Z' ? code + 32 : code;
  return shift_case(lower_ranges, code);
}

void append_lower(std::string& out, char32_t code) {
  if (code == 0x130) {
    out += "i\xCC\x87";
  } else {
    append_utf8(out, to_lower(code));
  }
}

std::u32string to_full_lower(char32_t code) {
  return code == 0x130 ? std::u32string(U"i\u0307") : std::u32string(1, to_lower(code));
}

std::u32string to_full_upper(char32_t code) {
  if (code < 0x80) return std::u32string(1, code >= 'a' && code <= 'z' ? code - 32 : code);
  const uint32_t* row = last_row_at(wide_upper, 4, static_cast<uint32_t>(code));
  if (row == nullptr || row[0] != code) return std::u32string(1, shift_case(upper_ranges, code));
  return row[3] == 0 ? std::u32string{row[1], row[2]} : std::u32string{row[1], row[2], row[3]};
}

int combining_class(char32_t code) {
  if (code < 0x300) return 0;
  const uint32_t* row = last_row_at(combining_ranges, 3, static_cast<uint32_t>(code));
  return row != nullptr && code <= row[1] ? static_cast<int>(row[2]) : 0;
}

Decomposition decompose_once(char32_t code) {
  if (code < 0xA0) return {};
  const auto* end = std::end(decomposition_codes);
  const auto* found = std::lower_bound(std::begin(decomposition_codes), end, static_cast<uint32_t>(code));
  if (found == end || *found != code) return {};
  const uint32_t* offset = decomposition_offsets + (found - std::begin(decomposition_codes));
  return {decomposition_parts + offset[0] / 2, static_cast<int>(offset[1] / 2 - offset[0] / 2),
          (offset[0] & 1) != 0};
}

char32_t compose(char32_t first, char32_t second) {
  if (const char32_t syllable = compose_hangul(first, second)) return syllable;
  size_t low = 0;
  size_t high = std::size(composition_triples) / 3;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const uint32_t* row = composition_triples + middle * 3;
    if (row[0] == first && row[1] == second) return row[2];
    if (row[0] < first || (row[0] == first && row[1] < second)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return 0;
}

}  // namespace sluice::unicode

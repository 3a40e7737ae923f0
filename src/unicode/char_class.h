// A set of characters as regular expressions write it: [^\s\p{L}], \p{Lu}, [A-Za-z], \d.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "unicode/unicode.h"

namespace sluice::unicode {

class CharClass {
 public:
  bool contains(char32_t code) const { return code < 128 ? ascii_[code] : contains_slowly(code); }
  bool contains_ascii(unsigned char byte) const { return ascii_[byte]; }

  void add(char32_t code) { add_range(code, code); }
  void add_range(char32_t first, char32_t last) { ranges_.emplace_back(first, last); }
  void add_categories(CategorySet set) { categories_ |= set; }
  void add_whitespace() { whitespace_ = true; }
  void add_not_whitespace() { not_whitespace_ = true; }
  // The other case of every letter in the set.
  void ignore_case();
  void negate() { negated_ = !negated_; }
  // Keeps what is in `other` too.
  void intersect(CharClass other) { other_ = std::make_shared<const CharClass>(std::move(other)); }
  // To be called when nothing more is added.
  void finish();

 private:
  bool contains_slowly(char32_t code) const;

  std::vector<std::pair<char32_t, char32_t>> ranges_;
  CategorySet categories_ = 0;
  bool whitespace_ = false, not_whitespace_ = false, negated_ = false;
  std::shared_ptr<const CharClass> other_;
  std::bitset<128> ascii_;
};

// Reads one class, escape or literal character of a pattern at `position`, which moves behind it. False, with
// the position anywhere, where it is something else or not understood.
bool parse_char_class(std::string_view pattern, size_t& position, bool ignores_case, CharClass& out);

}  // namespace sluice::unicode

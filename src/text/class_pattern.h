// The regular expressions that pre-tokenizers are made of: alternatives of sequences of quantified character
// classes, with optional groups and look-ahead at one character. Everything else is for pattern.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/char_class.h"

namespace sluice::text {

// Matching takes no memory, and time linear in the text for the patterns in use: only runs of one class are
// retried, from their end, and no run lies inside another.
class ClassPattern {
 public:
  // nullopt where the pattern is outside of this language.
  static std::optional<ClassPattern> compile(std::string_view pattern);

  static constexpr size_t no_match = ~size_t{0};
  // The end of the match that begins at `begin`, or no_match. REQUIRES: begin < text.size().
  size_t match_at(std::string_view text, size_t begin) const;

 private:
  struct Sequence;
  // A class that repeats, a group of alternatives (once or optional), or a look-ahead.
  struct Item {
    enum class Kind : uint8_t { Class, Group, LookAhead, NegativeLookAhead, LineEnd } kind = Kind::Class;
    CharClass characters;
    uint32_t least = 1, most = 1;
    bool is_possessive = false;
    std::vector<Sequence> group;
  };
  struct Sequence {
    std::vector<Item> items;
  };
  // What has to match behind a group.
  struct Rest {
    const Sequence* sequence;
    size_t item;
    const Rest* next;
  };

  class Parser;

  static size_t match(std::string_view text, size_t begin, Rest rest);
  static size_t match_class(const Item& item, std::string_view text, size_t begin, const Rest& rest);
  static size_t match_group(const Item& item, std::string_view text, size_t begin, const Rest& rest);
  void index_first_bytes();
  static bool may_start(const Sequence& sequence, unsigned char byte);

  std::vector<Sequence> alternatives_;
  std::array<uint32_t, 128> starts_{};  // bit i: alternative i can begin with this ASCII character
};

}  // namespace sluice::text

// The regular expressions that pre-tokenizers are made of: alternatives of sequences of quantified character
// classes, with optional groups and look-ahead at one character. Everything else is for pattern.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "unicode/char_class.h"

namespace sluice::unicode {

// Matching takes time linear in the text for the patterns in use: only runs of one class are retried, from
// their end, no run lies inside another, and a run that was retried in vain is remembered.
class ClassPattern {
 public:
  // What is known of one text. Every search in another text starts with an empty one.
  class Memory {
   public:
    void clear() { failed_.clear(); }

   private:
    friend class ClassPattern;
    // By item: wherever in [begin, end] a run starts, what has to follow does not match behind any part of it.
    struct Run {
      size_t begin = 1, end = 0;
    };
    std::vector<Run> failed_;
  };

  // nullopt where the pattern is outside of this language.
  static std::optional<ClassPattern> compile(std::string_view pattern);

  static constexpr size_t no_match = ~size_t{0};
  // The end of the match that begins at `begin`, or no_match. REQUIRES: begin < text.size().
  size_t match_at(std::string_view text, size_t begin, Memory& memory) const;

 private:
  static constexpr size_t no_run = ~size_t{0};
  struct Sequence;
  // A class that repeats, a group of alternatives (once or optional), or a look-ahead.
  struct Item {
    enum class Kind : uint8_t { Class, Group, LookAhead, NegativeLookAhead, LineEnd } kind = Kind::Class;
    CharClass characters;
    uint32_t least = 1, most = 1;
    bool is_possessive = false;
    size_t run = no_run;  // number of an unlimited class, for Memory
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

  // A text and what is known of it.
  struct Subject {
    std::string_view text;
    Memory& memory;
  };
  static size_t match(const Subject& subject, size_t begin, Rest rest);
  static size_t match_class(const Item& item, const Subject& subject, size_t begin, const Rest& rest);
  static size_t match_group(const Item& item, const Subject& subject, size_t begin, const Rest& rest);
  void index_first_bytes();
  static bool may_start(const Sequence& sequence, unsigned char byte);

  std::vector<Sequence> alternatives_;
  size_t run_count_ = 0;
  std::array<uint32_t, 128> starts_{};  // bit i: alternative i can begin with this ASCII character
};

}  // namespace sluice::unicode

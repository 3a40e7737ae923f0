// Regular expressions of pre-tokenizers and normalizers.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "unicode/class_pattern.h"
#include "unicode/encode_guard.h"

namespace sluice::unicode {

struct PatternMatch {
  size_t begin = 0, end = 0;
};

// Patterns are in the syntax of Oniguruma, as tokenizer.json has it. What ClassPattern understands is matched
// by it; everything else by PCRE2 with limits on matching, so that a bad pattern is an error and not a hang.
// May be used by many threads at once.
class Pattern {
 public:
  static Result<Pattern> compile(std::string_view source);
  // Matches this string and nothing else.
  static Result<Pattern> literal(std::string_view text);

  // Bytes of every match, where the pattern was made by literal().
  std::optional<size_t> literal_size() const { return literal_size_; }

  // Successive matches in one text, left to right. The text must be valid UTF-8 and outlive the finder. What matching
  // costs is counted by the guard, which may be null and outlives the finder.
  class Finder {
   public:
    explicit Finder(const Pattern& pattern, EncodeGuard* guard = nullptr);
    Finder(Finder&&) noexcept;
    ~Finder();
    // Starts at the beginning of a text.
    void reset(std::string_view text);
    // nullopt at the end. Matches may be empty. Errors: a match limit, and those of the guard.
    Result<std::optional<PatternMatch>> next();

   private:
    struct Memory;
    Result<std::optional<PatternMatch>> next_pcre();
    int match_pcre(uint32_t options);
    Error stopped(int code) const;

    const Pattern* pattern_;
    EncodeGuard* guard_;
    std::string_view text_;
    size_t position_ = 0;
    std::optional<size_t> empty_at_;  // where the last match was empty: the next one must not be
    ClassPattern::Memory class_memory_;
    std::unique_ptr<Memory> memory_;
  };

 private:
  struct Pcre;  // compiled code
  Pattern() = default;

  std::variant<std::monostate, ClassPattern, std::shared_ptr<const Pcre>> code_;
  std::optional<size_t> literal_size_;
};

}  // namespace sluice::unicode

// How many drafts are worth verifying: as many as make the most tokens per second, by what steps cost and by how often
// drafts were right, both as measured while the engine runs.
#pragma once

#include <array>
#include <cstddef>

namespace sluice::runtime {

struct DraftControlOptions {
  int most = 16;         // drafts of one work
  bool measured = true;  // false: always as many as there are
};

// Used by the executor's thread alone.
class DraftControl {
 public:
  explicit DraftControl(const DraftControlOptions& options) : options_(options) {}

  int most() const { return options_.most; }
  // Of a guess that was found by `match` tokens: how many of its tokens to verify. 0: none, it would not pay.
  int worth(int match);
  // Of `drafts` tokens, found by `match`, `accepted` were right.
  void note_verified(int match, int drafts, int accepted);
  // A step of so many tokens took so long.
  void note_step(int tokens, double seconds);

  // Tokens that a work with so many drafts is expected to give.
  double expected(int match, int drafts) const;
  // Time of a step of `tokens`, in units of that of `base` tokens.
  double relative_cost(int base, int tokens) const;

 private:
  // By the length of the match: 1, 2, 3-4, 5-8, 9-16, more.
  static constexpr size_t kLengths = 6;
  struct Acceptance {
    double right = 2,
           tried = 3;  // drafts, weighed by how recent they are; to begin with, two of three are right
  };
  // By the tokens of a step: each up to 16, then in steps of a quarter.
  static constexpr size_t kSizes = 48;
  static size_t length_class(int match);
  static size_t size_class(int tokens);
  static int class_tokens(size_t index);
  double seconds(int tokens) const;

  DraftControlOptions options_;
  std::array<Acceptance, kLengths> acceptance_;
  std::array<double, kSizes> seconds_{};  // 0: not measured
  int base_tokens_ = 1;                   // of the last step, drafts left out
  int drafts_in_step_ = 0;
  int declined_ = 0;  // guesses in a row that were not worth it
};

}  // namespace sluice::runtime

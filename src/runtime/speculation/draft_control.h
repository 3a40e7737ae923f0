// Which guess of a sequence is verified, and how many of its tokens: those that make the most tokens per second of the
// whole step, by what steps cost and by how often guesses were right, both as measured while the engine runs.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "request/speculation.h"

namespace sluice::runtime {

struct DraftControlOptions {
  int most = 16;         // drafts of one work
  bool measured = true;  // false: always as many as there are, of the first guess
};

// What a proposer has for a sequence.
struct Guess {
  request::Speculation by = request::Speculation::Off;
  int match = 0;   // tokens at the end of the sequence that it was found by
  int tokens = 0;  // guessed
};

// Used by the executor's thread alone.
class DraftControl {
 public:
  explicit DraftControl(const DraftControlOptions& options);

  int most() const { return options_.most; }

  struct Choice {
    size_t guess = 0;
    int drafts = 0;  // 0: none, no guess would pay
    // Drafts that are taken to be right, and time that the step takes longer for them, in units of the step without any.
    double expected = 0, cost = 0;
  };
  // For a sequence of the next step, which is taken to have as many sequences as the last one and the drafts that were
  // chosen since.
  Choice choose(std::span<const Guess> guesses);
  // Of `verified.drafted` tokens that were found by `match`, `verified.accepted` were right.
  void note_verified(int match, const request::Verified& verified);
  // A step ran, in which so many sequences sampled.
  void note_step(int sequences);
  // A step took so long that ran so many tokens, all of them sampled from.
  void note_cost(int tokens, double seconds);

  // The draft model took so long for as many drafts of a sequence as it ran passes.
  void note_draft_cost(int passes, double seconds);

  // How likely the next token of such a guess is right.
  double acceptance(request::Speculation by, int match) const;
  // Time of a step of `tokens`, in units of that of `base` tokens.
  double relative_cost(int base, int tokens) const;
  // Time of a pass of the draft model, in units of a step of `base` tokens.
  double relative_draft_cost(int base) const;

 private:
  // By the length of the match: 1, 2, 3-4, 5-8, 9-16, more.
  static constexpr size_t kLengths = 6;
  struct Acceptance {
    double right = 0, tried = 0;  // drafts, weighed by how recent they are
  };
  // By the tokens of a step: each up to 64, then in steps of a quarter.
  static constexpr size_t kSizes = 96;
  static size_t length_class(int match);
  static size_t size_class(int tokens);
  static int class_tokens(size_t index);
  // In units of speed_; 0: nothing was measured.
  double time_of(int tokens) const;
  // Drafts of a guess that pay most, the gain in tokens per second of the step, and the time that it takes longer, in units
  // of the step without drafts.
  struct Best {
    int drafts = 0;
    double gain = 1, cost = 0;
  };
  // Drafts of each of `sequences` that have such a guess, in a step of `passes` of the draft model for each draft.
  Best best_of(const Guess& guess, int sequences, double passes) const;
  Best best_of_model(const Guess& guess);
  Choice choice_of(std::span<const Guess> guesses);
  // Time of the step so far, with so many drafts more and so many passes of the draft model, in units of the step without
  // drafts.
  double step_cost(int drafts, double passes) const;
  // With what it is expected to give.
  Choice weighed(std::span<const Guess> guesses, Choice choice) const;
  // What so many drafts of one sequence add to the step's time.
  double added_cost(const Guess& guess, int drafts) const;
  bool try_again();

  DraftControlOptions options_;
  std::array<std::array<Acceptance, kLengths>, request::kSpeculations> acceptance_;
  // What a step of a size takes, in units of speed_: the clock of the machine, what else runs on it and the length of
  // contexts change all of them alike, and most sizes are measured seldom.
  struct Size {
    double time = 0;
    int seen = 0;       // measurements; 0: none
    double recent = 0;  // share of the steps that ran lately
  };
  std::array<Size, kSizes> sizes_{};
  double draft_time_ = 0;  // of a pass, in the same unit
  double speed_ = 1;       // seconds
  // Of the step in the making.
  int sequences_ = 1;
  int tokens_ = 1;                  // drafts among them
  int passes_ = 0;                  // of the draft model, for as many drafts of each sequence
  std::optional<Best> model_best_;  // the draft model's drafts, for all sequences of the step
  int model_guesses_ = 0;           // sequences that the draft model has guesses for
  int sharing_ = 1;                 // the same of the step before: its passes run for so many
  double expected_ = 1;             // tokens that it gives
  bool declined_ = false, tried_ = false;
  int declined_steps_ = 0;  // in a row, in which guesses were left alone
};

}  // namespace sluice::runtime

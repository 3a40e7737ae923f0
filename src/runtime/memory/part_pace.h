// How many tokens of a pass of a vision tower fit into a time, by what its parts took so far.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "models/vision/vision.h"
#include "sched/step_cost.h"

namespace sluice::runtime {

class PartPace {
 public:
  using Kind = models::VisionTower::PartKind;
  // Tokens of the smallest part, fewer of which take as long, and of the largest: GEMMs are no faster with more.
  static constexpr int64_t kLeast = 16, kMost = 256;

  void note(Kind kind, int64_t tokens, double seconds) { of(kind).observe(tokens, seconds); }
  bool known(Kind kind) const { return of(kind).known(); }
  // Whole smallest parts; 0: not even one fits.
  int64_t tokens_within(Kind kind, double seconds) const {
    const sched::StepCost& cost = of(kind);
    if (seconds < cost.seconds(kLeast)) return 0;
    return std::clamp(cost.tokens_within(seconds) / kLeast * kLeast, kLeast, kMost);
  }

 private:
  sched::StepCost& of(Kind kind) { return costs_[static_cast<size_t>(kind)]; }
  const sched::StepCost& of(Kind kind) const { return costs_[static_cast<size_t>(kind)]; }
  std::array<sched::StepCost, models::VisionTower::kPartKinds> costs_;
};

// Which parts run in a step. None is begun that would end behind the step's time. Where not even the smallest fits, its time
// is saved up for the next steps; one of them runs it in any case.
class PartBudget {
 public:
  // A step in which the pass may take so long.
  void begin_step(double seconds) {
    time_ = saved_ + seconds;
    ran_ = false;
  }
  // Tokens of the next part, `spent` seconds after the step's begin; 0: none.
  int64_t next(const PartPace& pace, PartPace::Kind kind, double spent) const {
    const bool is_due = !ran_ && (!pace.known(kind) || skipped_ >= kMostSkipped);
    const int64_t fitting = pace.known(kind) ? pace.tokens_within(kind, time_ - spent) : 0;
    return is_due ? std::max(fitting, PartPace::kLeast) : fitting;
  }
  void note_part() { ran_ = true; }
  // is_waiting: there was something to run.
  void end_step(bool is_waiting) {
    const bool saves = is_waiting && !ran_;
    saved_ = saves ? time_ : 0;
    skipped_ = saves ? skipped_ + 1 : 0;
  }

 private:
  static constexpr int kMostSkipped = 8;  // steps one behind the other
  double time_ = 0, saved_ = 0;
  int skipped_ = 0;
  bool ran_ = false;
};

}  // namespace sluice::runtime

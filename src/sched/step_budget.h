// How much more a step can hold.
#pragma once

#include <algorithm>

#include "request/step.h"
#include "sched/options.h"

namespace sluice::sched {

class StepBudget {
 public:
  // base_rows: rows that a padded step computes whether they have work or not.
  StepBudget(Layout layout, int limit, int max_rows, int base_rows = 0)
      : padded_(layout == Layout::Padded), limit_(limit), max_rows_(max_rows), base_rows_(base_rows) {}

  int limit() const { return limit_; }
  // The most tokens, up to `want`, that one more row may have.
  int fit(int want) const {
    if (rows_ >= max_rows_) return 0;
    if (!padded_) return std::max(0, std::min(want, limit_ - tokens_));
    const int rows = std::max(base_rows_, rows_ + 1);
    return int64_t{rows} * width_ > limit_ ? 0 : std::min(want, limit_ / rows);
  }
  // Whether one more row of so many tokens stays within a limit that may be another than that of the step.
  bool holds(int tokens, int limit) const {
    if (rows_ >= max_rows_) return false;
    if (!padded_) return tokens_ + tokens <= limit;
    return int64_t{std::max(base_rows_, rows_ + 1)} * std::max(width_, tokens) <= limit;
  }
  // The most tokens that a row of an otherwise empty step may have.
  int whole() const { return padded_ ? limit_ / std::max(1, base_rows_) : limit_; }

  void add(int tokens) {
    ++rows_;
    tokens_ += tokens;
    width_ = std::max(width_, tokens);
  }

  request::Rectangle rectangle() const { return {std::max(base_rows_, rows_), width_}; }

 private:
  bool padded_;
  int limit_, max_rows_, base_rows_;
  int rows_ = 0, width_ = 0, tokens_ = 0;
};

}  // namespace sluice::sched

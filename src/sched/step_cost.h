// How long a step takes, as learned from those that ran: seconds = fixed + per_token * tokens, by least squares in which
// older steps fade. While steps have about the same size the last known time of a token holds; as long as none is known
// the time counts as proportional to the tokens, which is too much for larger steps: what is planned by it is short rather
// than long, and the next steps tell more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace sluice::sched {

class StepCost {
 public:
  void observe(int64_t tokens, double seconds) {
    if (tokens <= 0 || !(seconds > 0)) return;
    constexpr double kKept = 0.97;  // of the weight of a step, when the next one comes
    const auto x = static_cast<double>(tokens);
    count_ = count_ * kKept + 1;
    x_ = x_ * kKept + x;
    y_ = y_ * kKept + seconds;
    xx_ = xx_ * kKept + x * x;
    xy_ = xy_ * kKept + x * seconds;
    const double spread = xx_ - x_ * x_ / count_;
    if (spread > kLeastSpread * xx_) {
      per_token_ = std::clamp((xy_ - x_ * y_ / count_) / spread, 0.0, y_ / x_);
      is_sloped_ = true;
    } else if (!is_sloped_) {
      per_token_ = y_ / x_;
    }
    fixed_ = std::max(0.0, (y_ - per_token_ * x_) / count_);
  }

  bool known() const { return count_ > 0; }
  double seconds(double tokens) const { return fixed_ + per_token_ * tokens; }
  // The most tokens of a step that takes no longer; at least one, any number where nothing is known.
  int64_t tokens_within(double seconds) const {
    if (!known() || per_token_ <= 0) return std::numeric_limits<int64_t>::max();
    return static_cast<int64_t>(std::clamp((seconds - fixed_) / per_token_, 1.0, 1e15));
  }

 private:
  static constexpr double kLeastSpread = 0.05;
  double count_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;  // sums over steps, faded
  double fixed_ = 0, per_token_ = 0;
  bool is_sloped_ = false;  // steps of different sizes have told the time of a token
};

}  // namespace sluice::sched

// How long the parts of a rank take in its steps on the host.
#pragma once

#include <algorithm>
#include <vector>

#include "base/clock.h"

namespace sluice::models {

struct PartTimes {
  std::vector<double> layers;  // seconds of each of the rank's layers
  double logits = 0;           // of those that the rank computes; 0: none
};

// Takes the times of steps of one shape, of each part the least. Null pointers to one time nothing.
class PartClock {
 public:
  explicit PartClock(size_t layers) { times_.layers.resize(layers); }

  void start() { start_ = Clock::now(); }
  // What ran since start() or the last call of these was this part.
  void end_layer(size_t layer) { end(times_.layers[layer]); }
  void end_logits() { end(times_.logits); }
  const PartTimes& times() const { return times_; }

 private:
  void end(double& least) {
    const TimePoint now = Clock::now();
    const double seconds = seconds_between(start_, now);
    least = least > 0 ? std::min(least, seconds) : seconds;
    start_ = now;
  }

  TimePoint start_{};
  PartTimes times_;
};

}  // namespace sluice::models

// Which time measurements are of.
#pragma once

#include <cstdint>
#include <ctime>

#include "base/clock.h"

namespace sluice::lab {

enum class TimeSource : uint8_t {
  Wall,
  Processor,  // of all threads of this process: what others do on a shared machine hardly counts
};

class Stopwatch {
 public:
  explicit Stopwatch(TimeSource source) : source_(source), begin_(now()) {}
  double seconds() const { return now() - begin_; }

 private:
  double now() const {
    if (source_ == TimeSource::Wall) return seconds_between(TimePoint{}, Clock::now());
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return double(used.tv_sec) + double(used.tv_nsec) * 1e-9;
  }

  TimeSource source_;
  double begin_;
};

}  // namespace sluice::lab

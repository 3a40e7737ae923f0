// Time. Durations come from the monotonic clock only, so that a clock set back never makes one negative.
#pragma once

#include <chrono>

namespace sluice {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Seconds = std::chrono::duration<double>;

inline double seconds_between(TimePoint from, TimePoint to) {
  return Seconds(to - from).count();
}
inline double seconds_since(TimePoint from) {
  return seconds_between(from, Clock::now());
}
// The moment that lies so many seconds ahead.
inline TimePoint after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
}

}  // namespace sluice

// The last steps of the engine and the requests that ended, for people who watch. Filled only while somebody reads it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "request/request.h"

namespace sluice::engine {

using request::FinishReason;
using request::RequestId;

// What a piece of work is for its request; a matter of numbers, the executor knows no difference.
enum class WorkKind : uint8_t {
  Prefill,     // positions of a prompt, or positions that run again; nothing is sampled
  Decode,      // samples a token after others
  PrefillEnd,  // ends with the prompt's last position: samples the first token, or completes the vector
};

struct TracedWork {
  RequestId request;
  int begin = 0, end = 0;  // positions [begin, end) of one sequence
  int prompt = 0;          // tokens of the request's prompt
  WorkKind kind = WorkKind::Prefill;
  int drafted = 0,
      accepted = 0;  // of the last positions: guesses that were verified, and those that were right
};

struct TracedStep {
  uint64_t number = 0;  // counts all steps of the engine, watched or not
  TimePoint begin{};
  double seconds = 0;  // as in the metrics' step_seconds
  std::vector<TracedWork> work;
  int64_t padding = 0;  // tokens computed for nothing
  std::vector<RequestId> preempted;
};

struct TracedEnd {
  RequestId request;
  TimePoint at{};
  FinishReason reason = FinishReason::Stop;
};

class Trace {
 public:
  // A reader that stays away for longer than this stops the recording.
  static constexpr Seconds kAttention{10};
  static constexpr size_t kSteps = 1024, kEnds = 1024;  // kept; older ones are forgotten

  // What a reader has seen; a fresh one has seen nothing.
  struct Cursor {
    uint64_t steps = 0, ends = 0;
  };
  struct Page {
    std::vector<std::shared_ptr<const TracedStep>> steps;
    std::vector<TracedEnd> ends;
  };

  // Any thread: what came since the cursor's last read, oldest first, as far as it is kept. The engine's thread is held
  // up for as long as it takes to copy the pointers.
  Page read(Cursor& cursor, TimePoint now);

  // The engine's thread.
  bool watched(TimePoint now) const {
    return now.time_since_epoch().count() < watched_until_.load(std::memory_order_relaxed);
  }
  // REQUIRES for both: watched(), or it is a waste.
  void add(TracedStep step);
  void add(const TracedEnd& end);

 private:
  template <class T>
  struct Ring {
    std::deque<T> items;
    uint64_t count = 0;  // ever added
    void push(T item, size_t most);
    std::vector<T> since(uint64_t& seen) const;
  };

  std::atomic<Clock::rep> watched_until_{std::numeric_limits<Clock::rep>::min()};
  std::mutex mutex_;
  Ring<std::shared_ptr<const TracedStep>> steps_;
  Ring<TracedEnd> ends_;
};

}  // namespace sluice::engine

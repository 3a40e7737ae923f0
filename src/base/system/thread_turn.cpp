#include "base/system/thread_turn.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace sluice {

namespace {

constexpr uint64_t kShortestTurn = 100'000;  // nanoseconds; the kernel raises less to this

// The kernel's struct of sched_setattr(2) in its first version; the C library has none.
struct ScheduleAttributes {
  uint32_t size = sizeof(ScheduleAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t niceness = 0;
  uint32_t priority = 0;
  uint64_t turn = 0;  // sched_runtime
  uint64_t deadline = 0;
  uint64_t period = 0;
};
static_assert(sizeof(ScheduleAttributes) == 48);

bool read_attributes(ScheduleAttributes& attributes) {
  return syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0;
}

double turn_clock() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

void shorten_thread_turns() {
  ScheduleAttributes attributes;
  if (!read_attributes(attributes) || attributes.policy != SCHED_OTHER) return;
  attributes.turn = kShortestTurn;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

uint64_t thread_turn() {
  ScheduleAttributes attributes;
  return read_attributes(attributes) ? attributes.turn : 0;
}

bool end_long_turn() {
  thread_local double turn_begin = 0;
  const double now = turn_clock();
  if (now - turn_begin < kBackgroundTurn) return false;
  sched_yield();
  turn_begin = turn_clock();
  return true;
}

}  // namespace sluice

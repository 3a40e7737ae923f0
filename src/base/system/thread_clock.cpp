#include "base/system/thread_clock.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace sluice {

namespace {

double read(clockid_t clock) {
  std::timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

ThreadClock::ThreadClock(clockid_t clock, int thread) : clock_(clock), thread_(thread), begin_(read(clock)) {}

ThreadClock ThreadClock::of_this_thread() {
  clockid_t clock = CLOCK_THREAD_CPUTIME_ID;
  pthread_getcpuclockid(pthread_self(), &clock);
  return {clock, gettid()};
}

double ThreadClock::seconds() const {
  return read(clock_) - begin_;
}

void ThreadClock::run_when_idle() const {
  const sched_param none{};
  sched_setscheduler(thread_, SCHED_IDLE, &none);
}

void lower_thread_priority(int niceness) {
  const auto thread = static_cast<id_t>(gettid());
  setpriority(PRIO_PROCESS, thread, std::max(niceness, getpriority(PRIO_PROCESS, thread)));
}

}  // namespace sluice

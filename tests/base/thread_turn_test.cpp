#include "base/system/thread_turn.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/system/thread_clock.h"

namespace sluice {
namespace {

int niceness() {
  return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
}

TEST(ThreadTurns, BecomeShorterAndLeaveThePriority) {
  if (thread_turn() == 0) GTEST_SKIP() << "this kernel has no turns of a thread's own";
  const uint64_t usual = thread_turn();
  std::thread([&] {
    lower_thread_priority(3);
    const int before = niceness();
    shorten_thread_turns();
    EXPECT_LT(thread_turn(), usual);
    EXPECT_EQ(niceness(), before);
    EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
  }).join();
  EXPECT_EQ(thread_turn(), usual) << "it is the calling thread's alone";
}

TEST(ThreadTurns, OfThreadsThatRunWhenIdleStayAsTheyAre) {
  std::thread([] {
    ThreadClock::of_this_thread().run_when_idle();
    const uint64_t before = thread_turn();
    shorten_thread_turns();
    EXPECT_EQ(thread_turn(), before);
    EXPECT_EQ(sched_getscheduler(0), SCHED_IDLE);
  }).join();
}

// Uses so many seconds of the processor.
void use_processor(double seconds) {
  const ThreadClock clock = ThreadClock::of_this_thread();
  while (clock.seconds() < seconds) {
  }
}

TEST(LongTurns, EndByThemselves) {
  std::thread([] {
    use_processor(2 * kBackgroundTurn);
    EXPECT_TRUE(end_long_turn());
    use_processor(2 * kBackgroundTurn);
    EXPECT_TRUE(end_long_turn());
  }).join();
}

// The time that a host takes from this machine counts as the thread's own: what comes next may then be a long turn too, but
// not each time.
bool once_in_a_few(const auto& holds) {
  for (int i = 0; i < 5; ++i)
    if (holds()) return true;
  return false;
}

TEST(LongTurns, AreThoseOfTheProcessorAlone) {
  std::thread([] {
    EXPECT_TRUE(once_in_a_few([] {
      use_processor(2 * kBackgroundTurn);
      EXPECT_TRUE(end_long_turn());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return !end_long_turn();
    })) << "it slept";
  }).join();
}

TEST(LongTurns, MayBeEndedByAnInterrupt) {
  std::thread([] {
    ShortTurns turns;
    EXPECT_TRUE(once_in_a_few([&] {
      use_processor(2 * kBackgroundTurn);
      EXPECT_TRUE(turns.check());
      return !end_long_turn();
    })) << "the interrupt has ended it";
  }).join();
}

}  // namespace
}  // namespace sluice

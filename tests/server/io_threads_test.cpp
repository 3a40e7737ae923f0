#include "server/core/io_threads.h"

#include <gtest/gtest.h>

#include <atomic>

#include "base/system/thread_turn.h"

namespace sluice::server {
namespace {

std::atomic<int> threads_with_short_turns{0};
std::atomic<uint64_t> usual_turn{0};

// Beside threads that compute they would get a core at the end of a tick, and events of streams would come in pairs.
TEST(IoThreads, HaveShortTurns) {
  threads_with_short_turns = 0;
  usual_turn = thread_turn();
  if (usual_turn == 0) GTEST_SKIP() << "this kernel has no turns of a thread's own";
  IoThreads threads(3);
  threads.start();
  threads.run_on_each([] {
    if (thread_turn() < usual_turn) ++threads_with_short_turns;
  });
  threads.join();
  EXPECT_EQ(threads_with_short_turns, 3);
}

}  // namespace
}  // namespace sluice::server

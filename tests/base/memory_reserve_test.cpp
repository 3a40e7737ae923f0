#include "base/system/memory_reserve.h"

#include <gtest/gtest.h>

#include <new>
#include <thread>

namespace sluice {
namespace {

// What operator new does when it finds no memory.
void run_out() {
  std::get_new_handler()();
}

TEST(MemoryReserve, IsGivenBackOnceAndTakenAgain) {
  MemoryReserve reserve;
  EXPECT_TRUE(reserve.whole());
  run_out();
  EXPECT_FALSE(reserve.whole());
  EXPECT_THROW(run_out(), std::bad_alloc);
  EXPECT_TRUE(MemoryReserve::regain());
  EXPECT_TRUE(reserve.whole());
  run_out();
  EXPECT_TRUE(reserve.refill());
}

TEST(MemoryReserve, IsOfOneThread) {
  const MemoryReserve reserve;
  std::thread([] {
    EXPECT_THROW(run_out(), std::bad_alloc);
    EXPECT_TRUE(MemoryReserve::regain());
  }).join();
  EXPECT_TRUE(reserve.whole());
}

}  // namespace
}  // namespace sluice

// Sleeping until an atomic number changes. Unlike std::atomic::wait it calls no sched_yield() first, by which a thread gives
// its share of the core to whatever else is runnable there, threads of low priority among them.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <limits>

namespace sluice {

// Returns when it is woken, when the number is not `seen`, or for no reason.
template <class Number>
void futex_wait(const std::atomic<Number>& number, Number seen) {
  static_assert(sizeof(std::atomic<Number>) == 4);
  syscall(SYS_futex, &number, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

// Wakes all that wait.
template <class Number>
void futex_wake(const std::atomic<Number>& number) {
  static_assert(sizeof(std::atomic<Number>) == 4);
  syscall(SYS_futex, &number, FUTEX_WAKE_PRIVATE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

// The same where the number lies in memory that processes share. Also returns after `longest`, under a second.
template <class Number>
void futex_wait_shared(const std::atomic<Number>& number, Number seen, std::chrono::nanoseconds longest) {
  static_assert(sizeof(std::atomic<Number>) == 4);
  const timespec time{0, static_cast<long>(longest.count())};
  syscall(SYS_futex, &number, FUTEX_WAIT, seen, &time, nullptr, 0);
}

template <class Number>
void futex_wake_shared(const std::atomic<Number>& number) {
  static_assert(sizeof(std::atomic<Number>) == 4);
  syscall(SYS_futex, &number, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

}  // namespace sluice

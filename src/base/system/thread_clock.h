// What one thread has used of the processor, and how much it may have when others want it.
#pragma once

#include <ctime>

namespace sluice {

class ThreadClock {
 public:
  // Counts from here on.
  static ThreadClock of_this_thread();

  // Of the processor. Any thread may ask as long as that thread lives.
  double seconds() const;
  // From now on that thread runs where no other wants to. Not to be taken back.
  void run_when_idle() const;

 private:
  ThreadClock(clockid_t clock, int thread);

  clockid_t clock_;
  int thread_;
  double begin_ = 0;
};

// Of the calling thread, which never gets more than it had.
void lower_thread_priority(int niceness);

}  // namespace sluice

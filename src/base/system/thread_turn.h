// How long a thread runs at once where others want its core.
#pragma once

#include <cstdint>

#include "base/interrupt.h"

namespace sluice {

// For threads that wake often and run for microseconds each time. The calling thread asks for the shortest turns: from Linux
// 6.12 on it then gets a core when it wakes, where it would wait for the end of another's turn, a tick or several. Its share
// stays what it was. Elsewhere nothing changes.
void shorten_thread_turns();

// Of the calling thread, in nanoseconds; 0 where the system does not say.
uint64_t thread_turn();

// For work of threads of low priority, which calls it often: ends the calling thread's turn where it has run for longer than
// kBackgroundTurn since it last did, and says whether. A thread that runs when idle gets a core that others compute on once in
// a while, too, and keeps it for a tick or several, in which a step waits: one that ends its turn by itself keeps it for this
// long. Where nobody else wants the core it goes on at once.
bool end_long_turn();
inline constexpr double kBackgroundTurn = 0.2e-3;  // seconds of the processor

// For work that asks an interrupt how to go on.
class ShortTurns final : public Interrupt {
 public:
  Status check() override {
    (void)end_long_turn();
    return {};
  }
};

}  // namespace sluice

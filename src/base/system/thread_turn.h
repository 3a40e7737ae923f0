// How long a thread runs at once where others want its core.
#pragma once

#include <cstdint>

namespace sluice {

// For threads that wake often and run for microseconds each time. The calling thread asks for the shortest turns: from Linux
// 6.12 on it then gets a core when it wakes, where it would wait for the end of another's turn, a tick or several. Its share
// stays what it was. Elsewhere nothing changes.
void shorten_thread_turns();

// Of the calling thread, in nanoseconds; 0 where the system does not say.
uint64_t thread_turn();

}  // namespace sluice

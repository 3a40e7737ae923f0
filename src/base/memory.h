// How much memory this machine can give.
#pragma once

#include <cstdint>

namespace sluice {

// Bytes that can be had without swapping: what is free and what the kernel would drop of its caches, as /proc/meminfo
// estimates it; where that cannot be read, what is free.
int64_t available_memory();

}  // namespace sluice

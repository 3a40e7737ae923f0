// How much memory this process can still have, and giving back what is free.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace sluice {

struct MemoryRoom {
  int64_t bytes = 0;
  std::string limit;  // what sets it, with its numbers: "the cgroup's limit of 1.0 GiB"
};

// Where the kernel says it.
struct MemorySources {
  std::string proc = "/proc";
  std::string cgroups = "/sys/fs/cgroup";
};

// The tightest of: what the machine has without swapping (free, and what the kernel would drop of its caches), the memory
// limits of this process's cgroup and those above it (v1 and v2), and the limit on its address space. `mapped`: bytes of
// mapped files that must stay in memory; the kernel counts them as droppable.
MemoryRoom memory_room(int64_t mapped = 0, const MemorySources& sources = {});

// "1.5 GiB", "200 MiB"
std::string memory_text(int64_t bytes);

// What a request is told that there is no memory for.
Error out_of_memory();

// Bytes that were freed and that the allocator keeps.
int64_t unused_memory();
// Gives them back to the system, but for what is less than a page.
void return_unused_memory();
// What the calling thread has freed, and what others freed of its blocks, goes back to the system: where the allocator
// keeps it with each thread, which gives it back when it allocates again.
void return_thread_memory();

}  // namespace sluice

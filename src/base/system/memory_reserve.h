// Memory that a thread keeps back for the case that there is none left.
//
// A change of state that takes several small allocations cannot be undone halfway. A thread with a reserve never has to:
// the first allocation by operator new that fails there is tried again with the reserve given back to the allocator. What
// is larger than the reserve still throws std::bad_alloc, as every failure on a thread without one does.
#pragma once

#include <array>
#include <cstddef>

namespace sluice {

class MemoryReserve {
 public:
  static constexpr size_t kBlocks = 16;
  // Small enough that the allocator takes a block from the thread's own arena.
  static constexpr size_t kBlockBytes = size_t{64} << 10;

  // For the calling thread, which also destroys it; one a thread. Sets the process's new-handler.
  MemoryReserve();
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  bool whole() const { return held_ == kBlocks; }
  // Takes what is missing; says whether it is whole.
  bool refill();
  // The same for the calling thread's; true where it has none.
  static bool regain();

 private:
  static void on_failure();
  void give_back();

  std::array<void*, kBlocks> blocks_{};
  size_t held_ = 0;
  bool filling_ = false;
};

}  // namespace sluice

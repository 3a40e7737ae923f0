// Memory that the ranks of one host have in common: a part of equal length for each, and a barrier. What ranks would send
// to each other they read where it lies, with as many threads as they have.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "dist/communicator.h"

namespace sluice::dist {

class SharedParts {
 public:
  // All ranks call it, with the same number. Null on all of them where they are not of one host, or where that has no such
  // memory left. The ranks outlive it. Throws GroupFailure.
  static std::unique_ptr<SharedParts> make(Communicator& ranks, size_t floats_each);
  // Leaves: ranks that wait for this one fail.
  ~SharedParts();
  SharedParts(const SharedParts&) = delete;
  SharedParts& operator=(const SharedParts&) = delete;

  // By which rank it is written is the callers' business; between a write and a read of another rank lies a barrier.
  std::span<float> of(int rank) const;
  // Returns when all ranks have called it as often as this one. A rank that waits spins for some microseconds, yields its core
  // for 2 ms, and sleeps then. Throws GroupFailure with the name of a rank that is lost or has left.
  void barrier();
  void leave();

 private:
  struct Seat;  // of a rank, in the shared memory

  SharedParts(Communicator& ranks, std::shared_ptr<std::byte> memory, size_t floats_each);
  Seat& seat(int rank) const;
  void wait_for(int rank);

  Communicator& ranks_;
  std::shared_ptr<std::byte> memory_;
  size_t floats_each_;
  uint32_t barriers_ = 0;
};

}  // namespace sluice::dist

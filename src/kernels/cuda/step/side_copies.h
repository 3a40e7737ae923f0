// Copies between device memory and pinned host memory that run beside the back-end's work, on a stream of their own.
//
// The pieces of a copy are gathered into (or spread from) a chunk of device memory by a kernel in the order of the work,
// which takes no longer than reading and writing them there. Only the way between chunk and host, which is fifty times
// slower, is left to the other stream. So work that follows a copy to the host may overwrite what was copied without
// waiting for it, and a copy from the host goes on while earlier work still uses the memory it is for.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "kernels/async_device.h"
#include "kernels/cuda/common/staging.h"

namespace sluice::kernels::cuda {

class SideCopies {
 public:
  // Both outlive this.
  SideCopies(cudaStream_t work, Staging& staging);
  ~SideCopies();
  SideCopies(const SideCopies&) = delete;
  SideCopies& operator=(const SideCopies&) = delete;

  // Takes the chunks' memory, so that no copy has to.
  void prepare();
  void to_host(std::byte* pinned, std::span<const AsyncDevice::Piece> from);
  void from_host(std::span<const AsyncDevice::Piece> to, const std::byte* pinned);
  bool pending() const;
  void wait() const;

 private:
  struct Chunk {
    DeviceBuffer memory;
    cudaEvent_t filled = nullptr, done = nullptr;
  };
  // Pieces of at most a chunk in all, from `index` and `offset` on, which are moved past them.
  struct Share {
    std::vector<int64_t> words;  // address, offset in the chunk, bytes
    size_t bytes = 0;
  };
  static Share take_share(std::span<const AsyncDevice::Piece> pieces, size_t& index, size_t& offset);
  Chunk& next();
  void move(const Chunk& chunk, const Share& share, bool gather);

  cudaStream_t work_, copies_ = nullptr;
  Staging& staging_;
  std::deque<Chunk> chunks_;
  size_t turn_ = 0;
};

}  // namespace sluice::kernels::cuda

// Copies from pageable memory, such as a mapped file, to the device by way of pinned memory: threads fill one piece of it
// while the copy engine empties the others. The driver's own way has one thread.
#pragma once

#include <array>

#include "base/thread_pool.h"
#include "kernels/cuda/common/host.h"

namespace sluice::kernels::cuda {

class HostUpload {
 public:
  explicit HostUpload(cudaStream_t stream);
  ~HostUpload();  // waits for what is under way
  HostUpload(const HostUpload&) = delete;
  HostUpload& operator=(const HostUpload&) = delete;

  // In the order of the stream. `from` may change once this has returned.
  void copy(void* to, const void* from, size_t bytes);

 private:
  struct Slot {
    PinnedBuffer memory;
    cudaEvent_t empty = nullptr;
  };
  cudaStream_t stream_;
  ThreadPool threads_;
  std::array<Slot, 4> slots_;
  size_t next_ = 0;
};

}  // namespace sluice::kernels::cuda

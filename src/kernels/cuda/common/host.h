// Errors and memory of the device, for the host side of the back-end.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "kernels/cuda/cuda.h"

namespace sluice::kernels::cuda {

// Throws DeviceError.
[[noreturn]] void fail(const char* what, const char* reason);

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail(what, cudaGetErrorString(error));
}

// Makes the device the current one of the calling thread.
void use_device(int device);

struct DeviceFree {
  void operator()(void* memory) const { cudaFree(memory); }
};
struct PinnedFree {
  void operator()(void* memory) const { cudaFreeHost(memory); }
};
using DeviceBuffer = std::unique_ptr<void, DeviceFree>;
using PinnedBuffer = std::unique_ptr<void, PinnedFree>;

DeviceBuffer allocate_device(size_t bytes);
// Zeros, for workspace: cuBLASLt's sums of parts read, and drop, a little more than its GEMMs have written, and
// initcheck does not see what the TMA unit stores.
DeviceBuffer allocate_cleared(size_t bytes);
PinnedBuffer allocate_pinned(size_t bytes);

// Device memory that grows: `at_least` keeps the old memory if it is large enough, else replaces it, losing
// what was in it. Freeing waits for the device, so work that still uses the old memory is safe.
class Scratch {
 public:
  void* at_least(size_t bytes);

 private:
  DeviceBuffer memory_;
  size_t bytes_ = 0;
};

}  // namespace sluice::kernels::cuda

#include "kernels/cuda/common/host.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::kernels::cuda {

void fail(const char* what, const char* reason) {
  throw DeviceError(fmt::format("CUDA: {}: {}", what, reason));
}

void use_device(int device) {
  thread_local int current = 0;  // what CUDA starts a thread with
  if (current == device) return;
  check(cudaSetDevice(device), "choosing a device");
  current = device;
}

DeviceBuffer allocate_device(size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, std::max<size_t>(bytes, 16));
  if (error != cudaSuccess) {
    cudaGetLastError();  // running out of memory leaves the device usable
    size_t free_bytes = 0, total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    fail(fmt::format("allocation of {} bytes of device memory ({} of {} are free)", bytes, free_bytes,
                     total_bytes)
             .c_str(),
         cudaGetErrorString(error));
  }
  return DeviceBuffer(memory);
}

DeviceBuffer allocate_cleared(size_t bytes) {
  DeviceBuffer memory = allocate_device(bytes);
  check(cudaMemset(memory.get(), 0, bytes), "memset");
  check(cudaStreamSynchronize(nullptr), "memset");
  return memory;
}

PinnedBuffer allocate_pinned(size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMallocHost(&memory, std::max<size_t>(bytes, 16));
  if (error != cudaSuccess) {
    cudaGetLastError();
    fail(fmt::format("allocation of {} bytes of pinned memory", bytes).c_str(), cudaGetErrorString(error));
  }
  return PinnedBuffer(memory);
}

void* Scratch::at_least(size_t bytes) {
  if (bytes > bytes_) {
    memory_.reset();
    const size_t rounded = (bytes + bytes / 4 + 0xfffff) & ~size_t{0xfffff};
    memory_ = allocate_cleared(rounded);
    bytes_ = rounded;
  }
  return memory_.get();
}

}  // namespace sluice::kernels::cuda

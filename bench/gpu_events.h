// Time on a stream between two events.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/common/host.h"

namespace sluice::bench {

class StreamTimer {
 public:
  explicit StreamTimer(cudaStream_t stream) : stream_(stream) {
    kernels::cuda::check(cudaEventCreate(&before_), "event");
    kernels::cuda::check(cudaEventCreate(&after_), "event");
  }
  ~StreamTimer() {
    cudaEventDestroy(before_);
    cudaEventDestroy(after_);
  }
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;

  // Milliseconds that the device takes for what `work` launches.
  template <class Work>
  float milliseconds(Work work) {
    kernels::cuda::check(cudaEventRecord(before_, stream_), "event");
    work();
    kernels::cuda::check(cudaEventRecord(after_, stream_), "event");
    kernels::cuda::check(cudaStreamSynchronize(stream_), "timing");
    float time = 0;
    kernels::cuda::check(cudaEventElapsedTime(&time, before_, after_), "event");
    return time;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t before_ = nullptr, after_ = nullptr;
};

}  // namespace sluice::bench

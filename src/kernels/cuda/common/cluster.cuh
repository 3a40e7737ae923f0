// Blocks of a cluster that wait for each other: every thread of all of them arrives, then waits.
#pragma once

#include "kernels/cuda/common/device.cuh"

namespace sluice::kernels::cuda {

// What the thread read and wrote before is done for whoever waits.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
// The same without an order of what the thread wrote, and without the fence over the device that gives one. What it read and
// has used was read before.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

}  // namespace sluice::kernels::cuda

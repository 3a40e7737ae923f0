#include "kernels/cuda/common/upload_arrays.h"

#include "kernels/cuda/common/device.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// grid: (pieces of the longest array, arrays); a thread has 16 bytes.
__global__ void __launch_bounds__(kThreads) upload_kernel(const UploadArraysParams p) {
  allow_dependents();
  const UploadArraysParams::Array& array = p.arrays[blockIdx.y];
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool there = i * 16 < array.bytes;
  uint4 v = make_uint4(0, 0, 0, 0);
  if (there)
    asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3},[%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(static_cast<const uint4*>(array.pinned) + i));
  wait_for_producer();
  if (there) static_cast<uint4*>(array.device)[i] = v;
}

}  // namespace

void launch_upload_arrays(const UploadArraysParams& p, Stream stream) {
  int64_t longest = 0;
  for (int64_t i = 0; i < p.count; ++i) longest = p.arrays[i].bytes > longest ? p.arrays[i].bytes : longest;
  if (longest == 0) return;
  const Grid grid{
      dim3(static_cast<unsigned>(ceil_div(longest, 16 * kThreads)), static_cast<unsigned>(p.count)),
      dim3(kThreads)};
  launch("upload_arrays", upload_kernel, grid, stream, p);
}

}  // namespace sluice::kernels::cuda

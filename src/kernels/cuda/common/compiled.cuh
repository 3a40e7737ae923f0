// What the architecture has that this pass of the compiler makes code for. On the host's side, 0 and nothing: what the code
// that runs has is features() (features.h).
//
// A kernel that needs more than sm_80 has begins with the requirement. For architectures that lack it the compiler drops
// all that follows, which the assembler would not take; the host launches no such kernel there.
#pragma once

namespace sluice::kernels::cuda {

namespace compiled {
#ifdef __CUDA_ARCH__
inline constexpr int kArch = __CUDA_ARCH__ / 10;  // compute capability, times ten
#else
inline constexpr int kArch = 0;
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
inline constexpr bool kHopper = true;
#else
inline constexpr bool kHopper = false;
#endif
inline constexpr bool kBulkCopies = kArch >= 90, kEarlyLaunch = kArch >= 90;
}  // namespace compiled

// sm_90a: wgmma, setmaxnreg, and kernels made for that chip.
__device__ __forceinline__ void require_hopper() {
  if constexpr (!compiled::kHopper) {
    __trap();
    __builtin_unreachable();
  }
}
// sm_90 and later: TMA, barriers that count bytes, clusters.
__device__ __forceinline__ void require_bulk_copies() {
  if constexpr (!compiled::kBulkCopies) {
    __trap();
    __builtin_unreachable();
  }
}

}  // namespace sluice::kernels::cuda

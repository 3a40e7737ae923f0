// Words shared by the kernels: bf16 in pieces of eight, reductions, and launches that may start before the
// kernel in front of them has ended (programmatic dependent launch).
//
// Every kernel of this directory calls wait_for_producer() in every thread before it reads anything that
// another kernel wrote and before it writes anything; what the host uploaded at load (weights, gains) may be
// read before. Activations are read with plain loads: a load the compiler takes for invariant could be moved
// above the wait.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/common/compiled.cuh"
#include "kernels/cuda/common/features.h"
#include "tensor/dtype.h"

namespace sluice::kernels::cuda {

using bf16 = __nv_bfloat16;

// Below sm_90 a kernel starts when the one in front has ended: nothing to do.
__device__ __forceinline__ void allow_dependents() {
  if constexpr (compiled::kEarlyLaunch) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ __forceinline__ void wait_for_producer() {
  if constexpr (compiled::kEarlyLaunch) asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ __forceinline__ float low_half(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_half(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
  __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<uint32_t*>(&pair);
}

__device__ __forceinline__ void unpack8(uint4 v, float* f) {
  f[0] = low_half(v.x), f[1] = high_half(v.x), f[2] = low_half(v.y), f[3] = high_half(v.y);
  f[4] = low_half(v.z), f[5] = high_half(v.z), f[6] = low_half(v.w), f[7] = high_half(v.w);
}
__device__ __forceinline__ uint4 pack8(const float* f) {
  return make_uint4(pack_pair(f[0], f[1]), pack_pair(f[2], f[3]), pack_pair(f[4], f[5]),
                    pack_pair(f[6], f[7]));
}

// Two fp8 elements (e4m3) as f16, which holds every one of them: one instruction from sm_89 on, several before.
__device__ __forceinline__ __half2 fp8_to_halves(uint16_t pair) {
  return __half2(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3));
}

// Times `factor`, rounded to fp8 (e4m3).
__device__ __forceinline__ uint2 round8(const float* f, float factor) {
  uint32_t words[2] = {};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t pair = __nv_cvt_float2_to_fp8x2(make_float2(f[2 * j] * factor, f[2 * j + 1] * factor),
                                                   __NV_SATFINITE, __NV_E4M3);
    words[j / 2] |= pair << (16 * (j % 2));
  }
  return make_uint2(words[0], words[1]);
}

// An activation: coherent, stays behind the wait.
__device__ __forceinline__ uint4 load_activation(const bf16* p) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3},[%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
// A weight, read once.
__device__ __forceinline__ uint4 load_weight(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// What bf16 leaves over of eight numbers.
__device__ __forceinline__ void leave_rest(float* f) {
#pragma unroll
  for (int j = 0; j < 8; ++j) f[j] -= __bfloat162float(__float2bfloat16(f[j]));
}

// Eight elements at p, of which the first `count` exist; the rest read as zero.
template <bool Vector>
__device__ __forceinline__ void load8(const bf16* p, int64_t count, float* f) {
  if constexpr (Vector) {
    unpack8(load_activation(p), f);
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] = j < count ? __bfloat162float(p[j]) : 0.0f;
  }
}
template <bool Vector>
__device__ __forceinline__ void store8(bf16* p, int64_t count, const float* f) {
  if constexpr (Vector) {
    *reinterpret_cast<uint4*>(p) = pack8(f);
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j)
      if (j < count) p[j] = __float2bfloat16(f[j]);
  }
}

template <bool Vector>
__device__ __forceinline__ void load8(const float* p, int64_t count, float* f) {
  if constexpr (Vector) {
#pragma unroll
    for (int half = 0; half < 8; half += 4)
      asm volatile("ld.global.v4.f32 {%0,%1,%2,%3},[%4];"
                   : "=f"(f[half]), "=f"(f[half + 1]), "=f"(f[half + 2]), "=f"(f[half + 3])
                   : "l"(p + half)
                   : "memory");
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] = j < count ? p[j] : 0.0f;
  }
}
template <bool Vector>
__device__ __forceinline__ void store8(float* p, int64_t count, const float* f) {
  if constexpr (Vector) {
    *reinterpret_cast<float4*>(p) = make_float4(f[0], f[1], f[2], f[3]);
    *reinterpret_cast<float4*>(p + 4) = make_float4(f[4], f[5], f[6], f[7]);
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j)
      if (j < count) p[j] = f[j];
  }
}

__device__ __forceinline__ float widen(bf16 v) {
  return __bfloat162float(v);
}
__device__ __forceinline__ float widen(__half v) {
  return __half2float(v);
}
__device__ __forceinline__ float widen(float v) {
  return v;
}
__device__ __forceinline__ float widen(__nv_fp8_e4m3 v) {
  return static_cast<float>(v);
}
__device__ __forceinline__ float widen(int8_t v) {
  return static_cast<float>(v);
}

// The nearest value of T.
template <class T>
__device__ __forceinline__ T narrow(float v) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return v;
  } else {
    return __float2bfloat16(v);
  }
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}

// Lane t of four neighbours gets v[t] of all of them, in their order.
__device__ __forceinline__ void transpose_four(uint32_t (&v)[4], int t) {
  const bool odd = (t & 1) != 0, upper = (t & 2) != 0;
  uint32_t a = __shfl_xor_sync(0xffffffffu, odd ? v[0] : v[1], 1),
           b = __shfl_xor_sync(0xffffffffu, odd ? v[2] : v[3], 1);
  if (odd) {
    v[0] = a, v[2] = b;
  } else {
    v[1] = a, v[3] = b;
  }
  a = __shfl_xor_sync(0xffffffffu, upper ? v[0] : v[2], 2),
  b = __shfl_xor_sync(0xffffffffu, upper ? v[1] : v[3], 2);
  if (upper) {
    v[0] = a, v[1] = b;
  } else {
    v[2] = a, v[3] = b;
  }
}

// Four 8 x 8 matrices of 16-bit elements in shared memory; lane i gives the address of row i % 8 of matrix i / 8, and
// lane 4g + t gets elements 2t and 2t + 1 of row g of each.
__device__ __forceinline__ void load_matrices(uint32_t address, uint32_t (&b)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void mma_bf16(float* c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                         uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_f16(float* c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                        uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Throws DeviceError with the name of what was launched and CUDA's reason. Defined in error.cpp.
void fail(const char* what, const char* reason);

inline void check_launch(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail(what, cudaGetErrorString(error));
}

// Of the current device. Defined in tma.cu.
int multiprocessors();

struct Grid {
  dim3 blocks, threads;
  size_t shared = 0;
  unsigned cluster = 1;  // blocks of a cluster
};

template <class... Formal, class... Actual>
void launch(const char* what, void (*kernel)(Formal...), const Grid& grid, cudaStream_t stream,
            Actual&&... actual) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (features().early_launch) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {grid.cluster, 1, 1};
  }
  check_launch(cudaLaunchKernelEx(&config, kernel, Formal(actual)...), what);
}

// Calls visit with a value of the element type of activations.
template <class Visit>
void visit_activations(DType type, Visit visit) {
  if (type == DType::F32) {
    visit(float{});
  } else {
    visit(bf16{});
  }
}

// The same for elements of KV caches; `what` is said of a type that has no kernel.
template <class Visit>
void visit_cache(DType type, const char* what, Visit visit) {
  switch (type) {
    case DType::BF16:
      return visit(bf16{});
    case DType::F16:
      return visit(__half{});
    case DType::F32:
      return visit(float{});
    case DType::F8_E4M3:
      return visit(__nv_fp8_e4m3{});
    case DType::I8:
      return visit(int8_t{});
    default:
      check_launch(cudaErrorInvalidValue, what);
  }
}

inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
inline bool aligned16(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

}  // namespace sluice::kernels::cuda

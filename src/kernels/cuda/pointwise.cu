// Element-wise operations, row gathers and the arg max. A thread handles eight consecutive elements of a row
// (one at a time where a view is not aligned to 16 bytes); each operand is read once.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

namespace sluice::kernels::cuda {
namespace {

enum ActivationCode : int32_t { kSilu, kGelu, kGeluTanh, kRelu, kRelu2, kSwigluOai };

__device__ __forceinline__ float sigmoid(float x) {
  return 1.0f / (1.0f + __expf(-x));
}

__device__ __forceinline__ float activate(float x, int32_t code) {
  switch (code) {
    case kSilu:
      return x * sigmoid(x);
    case kGelu:
      return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    case kGeluTanh:
      return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case kRelu:
      return fmaxf(x, 0.0f);
    case kRelu2:
      return x > 0.0f ? x * x : 0.0f;
    default:
      return x;
  }
}

__device__ __forceinline__ float gate(float g, float u, int32_t code) {
  if (code != kSwigluOai) return activate(g, code) * u;
  const float limited = fminf(g, 7.0f);
  return limited * sigmoid(1.702f * limited) * (fminf(fmaxf(u, -7.0f), 7.0f) + 1.0f);
}

__device__ __forceinline__ float apply(const PointwiseParams& p, float a, float b, int64_t column) {
  switch (p.operation) {
    case Pointwise::Copy:
      return a;
    case Pointwise::GateRows:
      return a * sigmoid(b);
    case Pointwise::Add:
      return a + p.factor * b;
    case Pointwise::AddBias:
      return a + p.bias[column];
    case Pointwise::Scale:
      return a * p.factor;
    case Pointwise::Softcap:
      return p.factor * tanhf(a / p.factor);
    case Pointwise::Clamp:
      return fminf(fmaxf(a, -p.factor), p.factor);
    case Pointwise::Activate:
      return activate(a, p.activation);
    case Pointwise::Gated:
      return gate(a, b, p.activation);
  }
  return 0.0f;
}

// grid: (pieces of 256 threads, rows folded)
template <bool Vector>
__global__ void __launch_bounds__(256) pointwise_kernel(const PointwiseParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 8;
  const int64_t count = p.a.dim - i;
  if (count <= 0) return;
  const int64_t rows = p.a.n * p.a.heads;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const int64_t token = row / p.a.heads, head = row % p.a.heads;
    const auto place = [&](const View& v) {
      return static_cast<bf16*>(v.data) + token * v.stride_n + head * v.stride_h + i;
    };
    float a[8], b[8];
    load8<Vector>(place(p.a), count, a);
    if (p.operation == Pointwise::GateRows) {
      const float value = __bfloat162float(static_cast<const bf16*>(p.b.data)[token * p.b.stride_n]);
#pragma unroll
      for (int j = 0; j < 8; ++j) b[j] = value;
    } else if (p.b.data != nullptr) {
      load8<Vector>(place(p.b), count, b);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j)
      if (j < count) a[j] = apply(p, a[j], p.b.data != nullptr ? b[j] : 0.0f, i + j);
    store8<Vector>(place(p.out), count, a);
  }
}

bool vectors(const View& v) {
  return v.data == nullptr ||
         (aligned16(v.data) && v.dim % 8 == 0 && v.stride_n % 8 == 0 && v.stride_h % 8 == 0);
}

Grid grid_of(const View& v) {
  const int64_t rows = v.n * v.heads;
  const auto columns = static_cast<unsigned>(ceil_div(ceil_div(v.dim, 8), 256));
  return {dim3(columns, static_cast<unsigned>(rows < 32768 ? rows : 32768)), dim3(256)};
}

template <bool Vector>
__global__ void __launch_bounds__(256) gather_kernel(const GatherParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 8;
  const int64_t count = p.x.dim - i;
  if (count <= 0) return;
  for (int64_t row = blockIdx.y; row < p.out.n; row += gridDim.y) {
    float f[8];
    load8<Vector>(static_cast<const bf16*>(p.x.data) + p.rows[row] * p.x.stride_n + i, count, f);
    store8<Vector>(static_cast<bf16*>(p.out.data) + row * p.out.stride_n + i, count, f);
  }
}

__global__ void __launch_bounds__(256) widen_kernel(const WidenParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= p.x.dim) return;
  for (int64_t row = blockIdx.y; row < p.x.n * p.x.heads; row += gridDim.y) {
    const int64_t token = row / p.x.heads, head = row % p.x.heads;
    p.out[row * p.x.dim + i] =
        __bfloat162float(static_cast<const bf16*>(p.x.data)[token * p.x.stride_n + head * p.x.stride_h + i]);
  }
}

// One block per row. NaN never wins.
__global__ void __launch_bounds__(1024) argmax_kernel(const ArgmaxParams p) {
  __shared__ float values[32];
  __shared__ int32_t indices[32];
  allow_dependents();
  wait_for_producer();
  const bf16* x = static_cast<const bf16*>(p.x.data) + int64_t{blockIdx.x} * p.x.stride_n;
  float best = -INFINITY;
  int32_t index = 0x7fffffff;
  const auto take = [&](float value, int32_t where) {
    if (value > best || (value == best && where < index)) best = value, index = where;
  };
  const bool vector =
      p.x.stride_n % 8 == 0 && p.x.dim % 8 == 0 && reinterpret_cast<uintptr_t>(p.x.data) % 16 == 0;
  if (vector) {
    for (int64_t i = int64_t{threadIdx.x} * 8; i < p.x.dim; i += int64_t{blockDim.x} * 8) {
      float f[8];
      unpack8(load_activation(x + i), f);
#pragma unroll
      for (int j = 0; j < 8; ++j) take(f[j], static_cast<int32_t>(i) + j);
    }
  } else {
    for (int64_t i = threadIdx.x; i < p.x.dim; i += blockDim.x)
      take(__bfloat162float(x[i]), static_cast<int32_t>(i));
  }
  const auto reduce = [&] {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
      const float value = __shfl_xor_sync(0xffffffffu, best, o);
      const int32_t where = __shfl_xor_sync(0xffffffffu, index, o);
      take(value, where);
    }
  };
  reduce();
  if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = best, indices[threadIdx.x / 32] = index;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  best = values[threadIdx.x], index = indices[threadIdx.x];
  reduce();
  if (threadIdx.x == 0) p.ids[blockIdx.x] = index == 0x7fffffff ? 0 : index;
}

}  // namespace

void launch_pointwise(const PointwiseParams& p, Stream stream) {
  if (p.a.n * p.a.heads == 0) return;
  if (vectors(p.out) && vectors(p.a) && (p.operation == Pointwise::GateRows || vectors(p.b))) {
    launch("pointwise", pointwise_kernel<true>, grid_of(p.a), stream, p);
  } else {
    launch("pointwise", pointwise_kernel<false>, grid_of(p.a), stream, p);
  }
}

void launch_gather(const GatherParams& p, Stream stream) {
  if (p.out.n == 0) return;
  if (vectors(p.out) && vectors(p.x)) {
    launch("gather", gather_kernel<true>, grid_of(p.out), stream, p);
  } else {
    launch("gather", gather_kernel<false>, grid_of(p.out), stream, p);
  }
}

void launch_widen(const WidenParams& p, Stream stream) {
  const int64_t rows = p.x.n * p.x.heads;
  if (rows * p.x.dim == 0) return;
  const Grid grid{
      dim3(static_cast<unsigned>(ceil_div(p.x.dim, 256)), static_cast<unsigned>(rows < 32768 ? rows : 32768)),
      dim3(256)};
  launch("widen", widen_kernel, grid, stream, p);
}

void launch_argmax(const ArgmaxParams& p, Stream stream) {
  if (p.x.n == 0) return;
  launch("argmax", argmax_kernel, {dim3(static_cast<unsigned>(p.x.n)), dim3(1024)}, stream, p);
}

}  // namespace sluice::kernels::cuda

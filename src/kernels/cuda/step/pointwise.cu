// Element-wise operations, row gathers and the arg max. A thread handles eight consecutive elements of a row
// (one at a time where a view is not aligned to 16 bytes); each operand is read once.
#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/gemm/gemm_params.h"
#include "kernels/cuda/sampling/sampling_params.h"
#include "kernels/cuda/step/token_params.h"

namespace sluice::kernels::cuda {
namespace {

__device__ __forceinline__ float apply(const PointwiseParams& p, float a, float b, int64_t column) {
  switch (p.operation) {
    case Pointwise::Copy:
      return a;
    case Pointwise::GateRows:
      return a * activate(b, p.activation);
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
    case Pointwise::Gated:  // gate8
      break;
  }
  return 0.0f;
}

// Gates are compiled by themselves: a choice for every element costs more than the bytes.
// grid: (pieces of 256 threads, rows folded)
template <class T, bool Vector, bool Gated>
__global__ void __launch_bounds__(256) pointwise_kernel(const PointwiseParams p) {
  // The kernel behind begins to read its weights when this one has its operands: it would be in the way of them.
  wait_for_producer();
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 8;
  const int64_t count = p.a.dim - i;
  if (count <= 0) return;
  const int64_t rows = p.a.n * p.a.heads;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const int64_t token = p.a.heads == 1 ? row : row / p.a.heads, head = row - token * p.a.heads;
    const auto place = [&](const View& v) {
      return static_cast<T*>(v.data) + token * v.stride_n + head * v.stride_h + i;
    };
    float a[8], b[8];
    load8<Vector>(place(p.a), count, a);
    if (!Gated && p.operation == Pointwise::GateRows) {
      const float value = widen(static_cast<const T*>(p.b.data)[token * p.b.stride_n]);
#pragma unroll
      for (int j = 0; j < 8; ++j) b[j] = value;
    } else if (p.b.data != nullptr) {
      load8<Vector>(place(p.b), count, b);
    }
    allow_dependents();
    if constexpr (Gated) {
      if (p.factor > 0.0f) {
#pragma unroll
        for (int j = 0; j < 8; ++j) a[j] = gate(a[j], b[j], p.activation, p.factor);
      } else if (p.activation == kSigmoidCode) {
        // Apart from the others: of one token the time is that of instructions, which come from memory.
#pragma unroll
        for (int j = 0; j < 8; ++j) a[j] = sigmoid(a[j]) * b[j];
      } else {
        gate8(a, b, p.activation);  // what is behind the row's end is not stored
      }
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (j < count) a[j] = apply(p, a[j], p.b.data != nullptr ? b[j] : 0.0f, i + j);
    }
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

template <class T, bool Vector>
__global__ void __launch_bounds__(256) gather_kernel(const GatherParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 8;
  const int64_t count = p.x.dim - i;
  if (count <= 0) return;
  for (int64_t row = blockIdx.y; row < p.out.n; row += gridDim.y) {
    float f[8];
    load8<Vector>(static_cast<const T*>(p.x.data) + p.rows[row] * p.x.stride_n + i, count, f);
    store8<Vector>(static_cast<T*>(p.out.data) + row * p.out.stride_n + i, count, f);
  }
}

template <class To, class From>
__global__ void __launch_bounds__(256) convert_kernel(const ConvertParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= p.x.dim) return;
  for (int64_t row = blockIdx.y; row < p.x.n * p.x.heads; row += gridDim.y) {
    const int64_t token = row / p.x.heads, head = row % p.x.heads;
    static_cast<To*>(p.out.data)[token * p.out.stride_n + head * p.out.stride_h + i] =
        narrow<To>(widen(static_cast<const From*>(p.x.data)[token * p.x.stride_n + head * p.x.stride_h + i]));
  }
}

// grid of the next two: (pieces of 256 threads, rows folded)
__global__ void __launch_bounds__(256) split_kernel(const SplitParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= p.x.dim) return;
  bf16* out = static_cast<bf16*>(p.out);
  for (int64_t row = blockIdx.y; row < p.x.n; row += gridDim.y) {
    const float value = static_cast<const float*>(p.x.data)[row * p.x.stride_n + i];
    const bf16 first = __float2bfloat16(value);
    out[row * p.x.dim + i] = first;
    out[(p.x.n + row) * p.x.dim + i] = __float2bfloat16(value - __bfloat162float(first));
  }
}

__global__ void __launch_bounds__(256) join_kernel(const JoinParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= p.out.dim) return;
  const float bias = p.bias != nullptr ? p.bias[i] : 0.0f;
  for (int64_t row = blockIdx.y; row < p.out.n; row += gridDim.y)
    static_cast<float*>(p.out.data)[row * p.out.stride_n + i] =
        p.parts[row * p.out.dim + i] + p.parts[(p.out.n + row) * p.out.dim + i] + bias;
}

// A value and its index as one number that is larger for a larger value and, among equals, for a lower index. NaN ranks
// below everything.
__device__ __forceinline__ unsigned long long key_of(float value, uint32_t index) {
  const uint32_t bits = __float_as_uint(value);
  const uint32_t rank = value != value ? 0u : (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(rank) << 32 | (0xffffffffu - index);
}

// grid: (pieces of a row, rows)
template <class T>
__global__ void __launch_bounds__(512) argmax_kernel(const ArgmaxParams p) {
  allow_dependents();
  wait_for_producer();
  const T* x = static_cast<const T*>(p.x.data) + int64_t{blockIdx.y} * p.x.stride_n;
  const bool vector =
      p.x.stride_n % 8 == 0 && p.x.dim % 8 == 0 && reinterpret_cast<uintptr_t>(p.x.data) % 16 == 0;
  const int64_t step = int64_t{gridDim.x} * blockDim.x * 8;
  unsigned long long best = 0;
  for (int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 8; i < p.x.dim; i += step) {
    float f[8];
    if (vector) {
      load8<true>(x + i, 8, f);
    } else {
      load8<false>(x + i, p.x.dim - i, f);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j)
      if (i + j < p.x.dim) best = max(best, key_of(f[j], static_cast<uint32_t>(i + j)));
  }
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) best = max(best, __shfl_xor_sync(0xffffffffu, best, o));
  if (threadIdx.x % 32 == 0) atomicMax(&p.keys[blockIdx.y], best);
}

__global__ void __launch_bounds__(256) argmax_end_kernel(const ArgmaxParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= p.x.n) return;
  p.ids[row] = static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(p.keys[row]));
  p.keys[row] = 0;
}

__global__ void __launch_bounds__(512) read_kernel(const uint4* data, size_t count, uint32_t* never) {
  uint32_t all = 0;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    const uint4 v = data[i];
    all |= v.x | v.y | v.z | v.w;
  }
  if (all != 0 && never != nullptr) *never = all;  // `never` is null, which the compiler does not know
}

}  // namespace

void launch_pointwise(const PointwiseParams& p, Stream stream) {
  if (p.a.n * p.a.heads == 0) return;
  const bool whole = vectors(p.out) && vectors(p.a) && (p.operation == Pointwise::GateRows || vectors(p.b));
  visit_activations(p.a.type, [&](auto element) {
    using T = decltype(element);
    const bool gated = p.operation == Pointwise::Gated;
    const auto vectorized = gated ? pointwise_kernel<T, true, true> : pointwise_kernel<T, true, false>;
    const auto plain = gated ? pointwise_kernel<T, false, true> : pointwise_kernel<T, false, false>;
    launch("pointwise", whole ? vectorized : plain, grid_of(p.a), stream, p);
  });
}

void launch_gather(const GatherParams& p, Stream stream) {
  if (p.out.n == 0) return;
  const bool whole = vectors(p.out) && vectors(p.x);
  visit_activations(p.x.type, [&](auto element) {
    using T = decltype(element);
    launch("gather", whole ? gather_kernel<T, true> : gather_kernel<T, false>, grid_of(p.out), stream, p);
  });
}

namespace {

// A thread per element of a row.
Grid narrow_grid(const View& v) {
  const int64_t rows = v.n * v.heads;
  return {
      dim3(static_cast<unsigned>(ceil_div(v.dim, 256)), static_cast<unsigned>(rows < 32768 ? rows : 32768)),
      dim3(256)};
}

}  // namespace

void launch_split(const SplitParams& p, Stream stream) {
  launch("split", split_kernel, narrow_grid(p.x), stream, p);
}

void launch_join(const JoinParams& p, Stream stream) {
  launch("join", join_kernel, narrow_grid(p.out), stream, p);
}

void launch_convert(const ConvertParams& p, Stream stream) {
  if (p.x.n * p.x.heads * p.x.dim == 0) return;
  const Grid grid = narrow_grid(p.x);
  visit_activations(p.x.type, [&](auto from) {
    visit_activations(p.out.type, [&](auto to) {
      launch("convert", convert_kernel<decltype(to), decltype(from)>, grid, stream, p);
    });
  });
}

void launch_read(const void* data, size_t bytes, Stream stream) {
  read_kernel<<<1024, 512, 0, stream>>>(static_cast<const uint4*>(data), bytes / 16, nullptr);
  check_launch(cudaGetLastError(), "read");
}

void launch_argmax(const ArgmaxParams& p, Stream stream) {
  if (p.x.n == 0) return;
  const int64_t wanted = 512 / p.x.n + 1, most = ceil_div(p.x.dim, 512 * 8);
  const Grid grid{dim3(static_cast<unsigned>(wanted < most ? wanted : most), static_cast<unsigned>(p.x.n)),
                  dim3(512)};
  visit_activations(
      p.x.type, [&](auto element) { launch("argmax", argmax_kernel<decltype(element)>, grid, stream, p); });
  launch("argmax", argmax_end_kernel, {dim3(static_cast<unsigned>(ceil_div(p.x.n, 256))), dim3(256)}, stream,
         p);
}

}  // namespace sluice::kernels::cuda

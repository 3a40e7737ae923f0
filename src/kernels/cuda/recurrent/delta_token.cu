// The gated delta rule of one token for each sequence.
//
// All that counts is the state, which is read and written once: a block has 128 columns of a head's state in registers, a warp
// kRows whole rows of them, four columns to a lane, so that a warp moves 512 bytes in a row. Sums over the rows are added in the
// order that delta_rule.cu has: over a warp's rows first to last, then over the warps two by two, so that a token has the same
// bits in both. Bytes: the state twice.
#include "kernels/cuda/recurrent/delta_rule.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kParts = 8, kBlock = 32 * kParts, kBlockColumns = 128;

__device__ __forceinline__ float4 add4(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
// a + b * c
__device__ __forceinline__ float4 fma4(float4 b, float c, float4 a) {
  return make_float4(fmaf(b.x, c, a.x), fmaf(b.y, c, a.y), fmaf(b.z, c, a.z), fmaf(b.w, c, a.w));
}

template <int kRows>
struct TokenTile {
  float q[kParts * kRows], k[kParts * kRows], decay[kParts * kRows];
  float beta;
  float4 sums[kParts][32];

  // Of all warps; every thread of the block calls it.
  __device__ __forceinline__ float4 sum_of_parts(float4 own) {
    const int lane = threadIdx.x % 32;
    sums[threadIdx.x / 32][lane] = own;
    __syncthreads();
    const auto two = [&](int part) { return add4(sums[part][lane], sums[part + 1][lane]); };
    const float4 sum = add4(add4(two(0), two(2)), add4(two(4), two(6)));
    __syncthreads();
    return sum;
  }
};

template <class T, int kRows>
__device__ __forceinline__ void load_token(const DeltaParams& p, TokenTile<kRows>& s, int64_t row, int head) {
  const int part = threadIdx.x / 32;
  if (part == 0)
    unit_keys<T, kRows * kParts / 32>(p, row, head, [&](int i, float q, float k) { s.q[i] = q, s.k[i] = k; });
  if (p.channel_decay != 0) {
    for (int i = threadIdx.x; i < kParts * kRows; i += kBlock)
      s.decay[i] = i < p.key_dim ? decay_of<T>(p, row, head, int64_t{head} * p.key_dim + i) : 0.0f;
  } else if (part == 1) {
    const float decay = decay_of<T>(p, row, head, head);
    for (int i = threadIdx.x % 32; i < kParts * kRows; i += 32) s.decay[i] = decay;
  }
  if (threadIdx.x == 64) s.beta = beta_of<T>(p, row, head);
}

// grid: (pieces of 128 columns, value heads, sequences)
template <class T, int kRows>
__global__ void __launch_bounds__(kBlock) delta_token_kernel(const DeltaParams p) {
  __shared__ TokenTile<kRows> s;
  wait_for_producer();
  const int part = threadIdx.x / 32, head = static_cast<int>(blockIdx.y);
  const int column = static_cast<int>(blockIdx.x) * kBlockColumns + static_cast<int>(threadIdx.x) % 32 * 4;
  const Walk walk(p.states, static_cast<int>(blockIdx.z));
  const int rows = column < p.value_dim ? p.key_dim - part * kRows : 0;
  const int64_t at = (int64_t{head} * p.key_dim + part * kRows) * p.value_dim + column;
  float4 state[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    state[r] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (walk.from != nullptr && r < rows)
      state[r] = *reinterpret_cast<const float4*>(walk.from + at + int64_t{r} * p.value_dim);
  }
  const int64_t row = walk.begin;
  float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (column < p.value_dim) {
    const int64_t first = values_of(p, head) + column;
    value = make_float4(element<T>(p.qkv, row, first), element<T>(p.qkv, row, first + 1),
                        element<T>(p.qkv, row, first + 2), element<T>(p.qkv, row, first + 3));
  }
  load_token<T>(p, s, row, head);
  __syncthreads();
  allow_dependents();  // not earlier: weights that the kernel behind reads ahead would be in the way

  const float *q = s.q + part * kRows, *k = s.k + part * kRows, *decay = s.decay + part * kRows;
  float4 known = make_float4(0.0f, 0.0f, 0.0f, 0.0f), sum = known;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    state[r] = make_float4(state[r].x * decay[r], state[r].y * decay[r], state[r].z * decay[r],
                           state[r].w * decay[r]);
    known = fma4(state[r], k[r], known);
  }
  known = s.sum_of_parts(known);
  const float4 delta = make_float4((value.x - known.x) * s.beta, (value.y - known.y) * s.beta,
                                   (value.z - known.z) * s.beta, (value.w - known.w) * s.beta);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    state[r] = fma4(delta, k[r], state[r]);
    sum = fma4(state[r], q[r], sum);
  }
  for (int32_t save = walk.save; save < walk.last_save; ++save) {
    float* to = p.states.data + p.states.saves[2 * save + 1] * p.states.stride + at;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (r < rows) *reinterpret_cast<float4*>(to + int64_t{r} * p.value_dim) = state[r];
  }
  sum = s.sum_of_parts(sum);
  if (part != 0 || column >= p.value_dim) return;
  const float out[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
  for (int j = 0; j < 4; ++j) set_element<T>(p.out, row, int64_t{head} * p.value_dim + column + j, out[j]);
}

template <class T, int kRows>
void launch_rows(const DeltaParams& p, Stream stream) {
  launch("delta token", delta_token_kernel<T, kRows>,
         {blocks(ceil_div(p.value_dim, kBlockColumns), p.value_heads, p.states.sequences), dim3(kBlock)},
         stream, p);
}

}  // namespace

bool delta_token_fits(const DeltaParams& p) {
  return p.single != 0 && p.key_dim <= 32 * kParts && p.value_dim % 4 == 0 && p.states.stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(p.states.data) % sizeof(float4) == 0;
}

void launch_delta_token(const DeltaParams& p, Stream stream) {
  visit_activations(p.qkv.type, [&](auto type) {
    using T = decltype(type);
    if (p.key_dim <= 8 * kParts) return launch_rows<T, 8>(p, stream);
    if (p.key_dim <= 16 * kParts) return launch_rows<T, 16>(p, stream);
    launch_rows<T, 32>(p, stream);
  });
}

}  // namespace sluice::kernels::cuda

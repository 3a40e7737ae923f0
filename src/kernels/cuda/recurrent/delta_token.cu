// The gated delta rule of one token for each sequence, with the bits of delta_rule.cu. All that counts is the state, which is
// read and written once. Bytes: the state twice.
#include "kernels/cuda/recurrent/delta_token.cuh"

namespace sluice::kernels::cuda {
namespace {

// grid: (pieces of 128 columns, value heads, sequences)
template <class T, int kRows>
__global__ void __launch_bounds__(kBlock, kRows <= 16 ? 2 : 1) delta_token_kernel(const DeltaParams p) {
  __shared__ TokenTile<kRows> s;
  const int part = threadIdx.x / 32, head = static_cast<int>(blockIdx.y);
  TokenGates<T, kRows> gates(p, head);
  wait_for_producer();
  const int column = static_cast<int>(blockIdx.x) * kBlockColumns + static_cast<int>(threadIdx.x) % 32 * 4;
  const Walk walk(p.states, static_cast<int>(blockIdx.z));
  const int rows = column < p.value_dim ? p.key_dim - part * kRows : 0;
  const int64_t at = (int64_t{head} * p.key_dim + part * kRows) * p.value_dim + column;
  TokenState<kRows> state;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    state.rows[r] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (walk.from != nullptr && r < rows)
      state.rows[r] = *reinterpret_cast<const float4*>(walk.from + at + int64_t{r} * p.value_dim);
  }
  const int64_t row = walk.begin;
  float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (column < p.value_dim) {
    const int64_t first = values_of(p, head) + column;
    value = make_float4(element<T>(p.qkv, row, first), element<T>(p.qkv, row, first + 1),
                        element<T>(p.qkv, row, first + 2), element<T>(p.qkv, row, first + 3));
  }
  if (part == 0)
    unit_keys<T, kRows * kParts / 32>(p, row, head, [&](int i, float q, float k) { s.q[i] = q, s.k[i] = k; });
  gates.load(p, row, head);
  gates.share(p, s);
  __syncthreads();
  allow_dependents();  // not earlier: weights that the kernel behind reads ahead would be in the way
  const float4 sum = state.advance(s, value, [&] {
    for (int32_t save = walk.save; save < walk.last_save; ++save)
      state.store(p.states.data + p.states.saves[2 * save + 1] * p.states.stride + at, rows, p.value_dim);
  });
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

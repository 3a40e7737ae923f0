// The log-probabilities that a sample reports.
#pragma once

#include "kernels/cuda/sampling/sample_row.cuh"

namespace sluice::kernels::cuda::sampling {

// Log-probabilities of the row as it is, of the token in s.token and of the likeliest.
template <bool Vector>
__device__ void report(PlainRow<Vector> row, int wanted, SampledToken& out, Shared& s) {
  constexpr float kLog2E = 1.44269504f;
  row.scale = kLog2E;
  float mine = 0;
  scan(row, [&](int64_t, int count, const float* f) {
    for (int j = 0; j < count; ++j) mine += row.weight(f[j]);
  });
  const float log_total = static_cast<float>(log(block_sum(mine, s)));
  if (threadIdx.x == 0) out.logprob = __bfloat162float(row.data[s.token]) - row.largest - log_total;
  const int top = static_cast<int>(min(static_cast<int64_t>(min(wanted, SampledToken::kTop)), row.width));
  if (threadIdx.x == 0) out.top = top;
  if (top == 0) return;
  const Cut cut = find_cut<false>(row, -INFINITY, top, s);
  const int above = static_cast<int>(cut.above);
  int32_t seen = 0, seen_equal = 0;
  for (int64_t tile = 0; tile < row.width; tile += kTile) {
    look_at(row, tile, [&](int64_t first, int count, const float* f) {
      int32_t greater = 0, equal = 0, all = 0, all_equal = 0;
      for (int j = 0; j < count; ++j) {
        greater += row.key_of(f[j]) > cut.key ? 1 : 0;
        equal += row.key_of(f[j]) == cut.key ? 1 : 0;
      }
      int32_t place = seen + sum_before(greater, s.counts, all);
      int32_t equal_place = above + seen_equal + sum_before(equal, s.counts, all_equal);
      for (int j = 0; j < count; ++j) {
        const uint32_t key = row.key_of(f[j]);
        if (key < cut.key) continue;
        const int32_t to = key > cut.key ? place++ : equal_place++;
        if (to >= top) continue;
        out.top_tokens[to] = static_cast<int32_t>(first) + j;
        out.top_logprobs[to] = f[j] - row.largest - log_total;
      }
      seen += all;
      seen_equal += all_equal;
    });
  }
}

}  // namespace sluice::kernels::cuda::sampling

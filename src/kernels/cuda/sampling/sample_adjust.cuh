// Edits of a row: penalties, biases, forbidden tokens. The row itself stays as it came; whoever reads eight of its
// elements also looks for edits of them. The edits are sorted by token, and a table in shared memory has the first edit
// of each range of tokens, so that most reads find none at once.
#pragma once

#include "kernels/cuda/sampling/sample_row.cuh"

namespace sluice::kernels::cuda::sampling {

// In the order and the roundings of decode/processors.h.
__device__ inline float edited(float logit, const LogitAdjustment& edit, const SampleArgs& how) {
  if ((edit.marks & LogitAdjustment::kEnds) != 0 && how.masks_ends != 0) return -INFINITY;
  logit += edit.bias;
  if ((edit.marks & LogitAdjustment::kInPrompt) == 0 && edit.output == 0) return logit;
  logit = logit < 0.0f ? __fmul_rn(logit, how.repetition) : __fdiv_rn(logit, how.repetition);
  if (edit.output == 0) return logit;
  logit = __fsub_rn(logit, __fmul_rn(how.frequency, static_cast<float>(edit.output)));
  return __fsub_rn(logit, how.presence);
}

// A row with its edits. Its values are any f32, its keys have 32 bits.
template <class Plain>
struct EditedRow {
  static constexpr int kKeyBits = 32, kAhead = 2;

  Plain plain;
  int64_t width;
  float largest, scale;
  const LogitAdjustment* edits;  // `bias` has the value by now
  const uint32_t* begin;         // [kSteps] first edit of the tokens from i << shift on
  uint32_t count;
  int shift;
  int32_t extra;  // one more edited token; -1: none
  float extra_value;

  __device__ float weight(float v) const { return exp2f((v - largest) * scale); }
  __device__ static uint32_t key_of(float v) {
    const uint32_t bits = __float_as_uint(v + 0.0f);
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  }
  __device__ static float value_of(uint32_t key) {
    return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
  }

  __device__ __forceinline__ int fetch(int64_t first, float* f) const {
    const int found = plain.fetch(first, f);
    if (found == 0) return 0;
    const auto set = [&](int64_t token, float value) {
#pragma unroll
      for (int j = 0; j < 8; ++j) f[j] = token == first + j ? value : f[j];
    };
    const auto range = static_cast<uint32_t>(first >> shift);
    const uint32_t end = range + 1 < kSteps ? begin[range + 1] : count;
    for (uint32_t i = begin[range]; i < end; ++i) set(edits[i].token, edits[i].bias);
    set(extra, extra_value);
    return found;
  }

  // look(token, value) for every edit, by some thread.
  template <class Look>
  __device__ __forceinline__ void each_edit(const Look& look) const {
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) look(edits[i].token, edits[i].bias);
    if (threadIdx.x == 0 && extra >= 0) look(extra, extra_value);
  }
};

// `edits`: of this row; their biases become the tokens' values. `previous`: the token that how.follows speaks of.
template <class Plain>
__device__ EditedRow<Plain> edit_row(const Plain& plain, const SampleArgs& how, LogitAdjustment* edits,
                                     int32_t previous, Shared& s) {
  EditedRow<Plain> row{
      plain, plain.width, plain.largest, plain.scale, edits, s.first_edit, static_cast<uint32_t>(how.edits),
      3,     -1,          0.0f};
  while ((plain.width - 1) >> row.shift >= kSteps) ++row.shift;
  for (uint32_t i = threadIdx.x; i < kSteps; i += kThreads) s.first_edit[i] = 0;
  if (threadIdx.x == 0) s.repeated = 0;
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < row.count; i += kThreads) {
    LogitAdjustment edit = edits[i];
    if (how.follows != 0 && edit.token == previous) {
      ++edit.output;
      s.repeated = 1;
    }
    edits[i].bias = edited(plain.value(edit.token), edit, how);
    atomicAdd(&s.first_edit[edit.token >> row.shift], 1u);
  }
  __syncthreads();
  const uint32_t at = 2 * threadIdx.x;
  const auto first = static_cast<int32_t>(s.first_edit[at]),
             second = static_cast<int32_t>(s.first_edit[at + 1]);
  int32_t total = 0;
  const int32_t before = sum_before(first + second, s.counts, total);
  s.first_edit[at] = static_cast<uint32_t>(before);
  s.first_edit[at + 1] = static_cast<uint32_t>(before + first);
  if (how.follows != 0 && s.repeated == 0) {
    const LogitAdjustment once{previous, 0.0f, 1, 0};
    row.extra = previous;
    row.extra_value = edited(plain.value(previous), once, how);
  }
  __syncthreads();
  return row;
}

}  // namespace sluice::kernels::cuda::sampling

// What decode_attention.cu gets, and what its warps tell each other.
#pragma once

#include "kernels/cuda/attention/attention_params.h"
#include "kernels/cuda/attention/decode_attention_plan.h"
#include "kernels/cuda/common/device.cuh"

namespace sluice::kernels::cuda {

constexpr int kWarps = 4, kThreads = kWarps * 32 + 32;

struct OneArguments {
  const bf16* q;
  bf16* out;
  const int32_t* plan;  // of plan_decode_attention()
  float* parts;         // [ranges, 2, kPartFloats]
  int32_t* arrivals;    // [tokens, kv_heads], zero before and after
  int32_t* tickets;     // [2]: ranges given out, blocks that asked in vain; zero before and after
  const float* sinks;   // [heads] or null
  const float* alibi;   // [heads] or null
  const uint8_t *keys, *values;
  int64_t stride_block, stride_head;  // of both, in bytes
  TableView table;
  int block_shift;  // a block has 1 << block_shift slots
  int64_t q_stride, out_stride_n, out_stride_h;
  int tokens, kv_heads, group, window;
  int ahead;  // keys of earlier positions were all written by earlier steps
  float scale, softcap;
  float scale_of_powers;  // of two: scale / log(2)
};

// Units of one (token, head) that lie in one range; `units` has that head in all, from unit `begin` of all on. None: the
// end of a block's work.
struct Piece {
  int token, head, unit, units, count, range, begin, position;
};

// Ranges or a DecodeAttentionStart of the plan.
template <class T>
__device__ __forceinline__ T read_plan(const int32_t* at) {
  static_assert(sizeof(T) == 32);
  const int4 both[2] = {__ldg(reinterpret_cast<const int4*>(at)),
                        __ldg(reinterpret_cast<const int4*>(at) + 1)};
  T result;
  memcpy(&result, both, sizeof result);
  return result;
}

}  // namespace sluice::kernels::cuda

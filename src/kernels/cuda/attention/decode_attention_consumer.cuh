// What the warps of decode_attention.cu and decode_attention_few.cu do with units and with parts of a head.
#pragma once

#include <bit>

#include "kernels/cuda/attention/decode_attention_mma.cuh"
#include "kernels/cuda/attention/flash/flash.h"
#include "kernels/cuda/common/tma.cuh"

namespace sluice::kernels::cuda {

__device__ __forceinline__ void sync_warps() {
  asm volatile("bar.sync 1, %0;" ::"n"(kWarps * 32) : "memory");
}
// A maximum, a sum and four values of a head, from some of its keys.
struct Part {
  float maximum, sum;
  float4 values;
};

// read(i) gives part i. The reads of eight parts are under way together.
template <int Together, class Read>
__device__ __forceinline__ Part merge(int parts, const Read& read) {
  Part result{-INFINITY, 0.0f, make_float4(0.0f, 0.0f, 0.0f, 0.0f)};
  for (int first = 0; first < parts; first += Together) {
    Part some[Together];
    float maximum = result.maximum;
#pragma unroll
    for (int i = 0; i < Together; ++i) {
      some[i] = first + i < parts ? read(first + i) : Part{-INFINITY, 0.0f, make_float4(0, 0, 0, 0)};
      maximum = fmaxf(maximum, some[i].maximum);
    }
    const auto add = [&](const Part& part) {
      const float factor = exp2f(part.maximum - maximum);
      result.sum += factor * part.sum;
      result.values.x += factor * part.values.x, result.values.y += factor * part.values.y;
      result.values.z += factor * part.values.z, result.values.w += factor * part.values.w;
    };
    const Part before = result;
    result = Part{maximum, 0.0f, make_float4(0, 0, 0, 0)};
    add(before);
#pragma unroll
    for (int i = 0; i < Together; ++i) add(some[i]);
  }
  return result;
}

// `sink`: one more score, with no value; -infinity where there is none.
__device__ __forceinline__ void store_result(bf16* out, const Part& part, float sink) {
  const float maximum = fmaxf(part.maximum, sink), factor = exp2f(part.maximum - maximum);
  const float inverse = factor / (part.sum * factor + exp2f(sink - maximum));
  *reinterpret_cast<uint2*>(out) = make_uint2(pack_pair(part.values.x * inverse, part.values.y * inverse),
                                              pack_pair(part.values.z * inverse, part.values.w * inverse));
}

// Four elements of head `r` of the group, from `d` on, of all warps' shares in shared memory.
template <class L>
__device__ __forceinline__ Part merge_warps(const uint8_t* shared, int r, int d) {
  const auto* values = reinterpret_cast<const float*>(shared + L::kValues);
  const auto* maxima = reinterpret_cast<const float*>(shared + L::kMaxima);
  const auto* sums = reinterpret_cast<const float*>(shared + L::kSums);
  return merge<kWarps>(kWarps, [&](int w) {
    const int row = w * kMaxGroup + r;
    return Part{maxima[row], sums[row], *reinterpret_cast<const float4*>(values + row * L::kPitch + d)};
  });
}

// Where the stages and their barriers are, and which of them comes next.
struct StageRing {
  uint32_t base, full, empty;
  int stage = 0;
  uint32_t parity = 0;
};
// Units of one head, from its unit `unit` on.
struct UnitRun {
  int position, unit, count;
};

// The warp's 16 keys of every unit.
template <class L>
__device__ __forceinline__ void consume_units(OneShare<L>& share, const OneArguments& p, StageRing& ring,
                                              const UnitRun& run) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool scores_plain = p.softcap == 0.0f && p.alibi == nullptr && p.scale > 0.0f;
  const int position = run.position, from = first_key(position, p.window);
  const int begin = from / kKeys + run.unit, end = begin + run.count;
  // Units of which all keys count.
  const int whole_from = (from + kKeys - 1) / kKeys, whole_to = (position + 1) / kKeys;
  for (int unit = begin; unit < end; ++unit) {
    barrier_wait(ring.full + 8 * ring.stage, ring.parity);
    const uint32_t at = ring.base + ring.stage * L::kStageBytes;
    const KeyRange range{from - unit * kKeys, position + 1 - unit * kKeys};
    if (scores_plain && unit >= whole_from && unit < whole_to) {
      share.template add<Keys::Plain>(p, at, warp, range, lane);
    } else if (scores_plain) {
      share.template add<Keys::Masked>(p, at, warp, range, lane);
    } else {
      share.template add<Keys::Any>(p, at, warp, range, lane);
    }
    // The MMAs that use the stage have all been issued, so all reads of it have ended.
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.empty + 8 * ring.stage);
    if (++ring.stage == L::kStages) ring.stage = 0, ring.parity ^= 1u;
  }
}

// All but what only one of the kernels needs.
inline OneArguments one_arguments(const DecodeAttentionParams& p) {
  const AttentionParams& a = p.attention;
  const int64_t bytes = a.k.type == DType::F8_E4M3 ? 1 : 2;
  OneArguments arguments{};
  arguments.q = static_cast<const bf16*>(a.q.data);
  arguments.out = static_cast<bf16*>(a.out.data);
  arguments.plan = p.plan;
  arguments.keys = static_cast<const uint8_t*>(a.k.data);
  arguments.values = static_cast<const uint8_t*>(a.v.data);
  arguments.stride_block = a.k.stride_block * bytes;
  arguments.stride_head = a.k.stride_head * bytes;
  arguments.table = a.table;
  arguments.block_shift = std::countr_zero(static_cast<unsigned>(a.table.block_size));
  arguments.q_stride = a.q.stride_n;
  arguments.out_stride_n = a.out.stride_n;
  arguments.out_stride_h = a.out.stride_h;
  arguments.sinks = a.sinks;
  arguments.alibi = a.alibi;
  arguments.tokens = static_cast<int>(a.q.n);
  arguments.kv_heads = static_cast<int>(a.kv_heads);
  arguments.group = static_cast<int>(a.q.heads / a.kv_heads);
  arguments.window = a.window;
  arguments.ahead = p.ahead;
  arguments.scale = a.scale;
  arguments.scale_of_powers = a.scale * kLog2E;
  arguments.softcap = a.softcap;
  return arguments;
}

}  // namespace sluice::kernels::cuda

// How attention_one.cu shares out its work: units of 64 keys, in the order of (token, kv head, key), and the run of them that
// each block has.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

namespace sluice::kernels::cuda {

constexpr int kKeys = 64, kWarps = 4, kThreads = kWarps * 32 + 32;
// Keys or values; strides in bytes.
struct OneCache {
  const uint8_t* data;
  int64_t stride_block, stride_head;
};

struct OneArguments {
  const bf16* q;
  bf16* out;
  float* parts;        // [blocks, 2, kPartFloats]
  int32_t* arrivals;   // [tokens, kv_heads], zero before and after
  const float* sinks;  // [heads] or null
  const float* alibi;  // [heads] or null
  OneCache keys, values;
  TableView table;
  int64_t q_stride, out_stride_n, out_stride_h;
  int tokens, kv_heads, group, window;
  float scale, softcap;
  float scale_of_powers;  // of two: scale / log(2)
  int whole;              // no head is shared between blocks, and a token may see others of this step
};

// What a block works on: units [first, last) of all, one (token, head) after the other.
struct Walk {
  const int* first_unit;  // [tokens + 1]; units of one kv head before each token
  int kv_heads;
  int64_t at, last;
  int token, head, unit, units;  // units: of this token and head

  __device__ __forceinline__ Walk(const int* first, int tokens, int heads, int64_t begin, int64_t end)
      : first_unit(first), kv_heads(heads), at(begin), last(end) {
    int low = 0, high = tokens - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (int64_t{first_unit[middle]} * kv_heads <= at) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    token = low;
    units = first_unit[low + 1] - first_unit[low];
    const int within = static_cast<int>(at - int64_t{first_unit[low]} * kv_heads);
    head = within / units;
    unit = within % units;
  }
  __device__ __forceinline__ bool live() const { return at < last; }
  // Units of this head that belong to the block.
  __device__ __forceinline__ int count() const {
    return static_cast<int>(last - at < units - unit ? last - at : units - unit);
  }
  __device__ __forceinline__ void next() {
    at += count();
    unit = 0;
    if (++head < kv_heads || !live()) return;
    head = 0;
    ++token;
    units = first_unit[token + 1] - first_unit[token];
  }
};

// The first key that a token at `position` sees.
__device__ __forceinline__ int first_key(const OneArguments& p, int position) {
  return p.window > 0 && position >= p.window ? position - p.window + 1 : 0;
}
__device__ __forceinline__ int units_of(const OneArguments& p, int position) {
  return position / kKeys - first_key(p, position) / kKeys + 1;
}

// positions and the running sum of units to shared memory.
__device__ __forceinline__ void count_units(const OneArguments& p, int* positions, int* first_unit,
                                            int* scratch) {
  const int each = (p.tokens + kThreads - 1) / kThreads, begin = threadIdx.x * each;
  int sum = 0;
  for (int s = begin; s < begin + each && s < p.tokens; ++s) {
    positions[s] = p.table.positions[s];
    sum += units_of(p, positions[s]);
  }
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int running = sum;
#pragma unroll
  for (int o = 1; o < 32; o *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, running, o);
    if (lane >= o) running += other;
  }
  if (lane == 31) scratch[warp] = running;
  __syncthreads();
  for (int w = 0; w < warp; ++w) running += scratch[w];
  running -= sum;
  for (int s = begin; s < begin + each && s < p.tokens; ++s) {
    first_unit[s] = running;
    running += units_of(p, positions[s]);
    if (s == p.tokens - 1) first_unit[p.tokens] = running;
  }
  __syncthreads();
}

// Blocks that have work: all, unless there are fewer units.
__device__ __forceinline__ int64_t blocks_for(int64_t units) {
  return units < gridDim.x ? units : gridDim.x;
}

// The first unit from `at` on with which a head begins; `all` where there is none.
__device__ __forceinline__ int64_t next_head(const OneArguments& p, const int* first_unit, int64_t at) {
  const int64_t all = int64_t{first_unit[p.tokens]} * p.kv_heads;
  if (at >= all) return all;
  const Walk walk(first_unit, p.tokens, p.kv_heads, at, all);
  return walk.unit == 0 ? at : at + walk.units - walk.unit;
}

// Whether heads are left whole: asked for, or because the block with the most to read then has little more than all have
// when heads are cut, and need not wait for the parts of others. `longest`: shared, zero before.
__device__ __forceinline__ bool leave_whole(const OneArguments& p, const int* first_unit, int* longest) {
  // Units of a block: with fewer, a head is too long for one block; with more, the parts cost little.
  constexpr int kFewest = 8, kMost = 128;
  constexpr int kMerge = 2;  // units that are read while parts are merged
  const int64_t all = int64_t{first_unit[p.tokens]} * p.kv_heads, blocks = blocks_for(all);
  if (p.whole != 0) return true;
  if (all < kFewest * blocks || all > kMost * blocks) return false;
  for (int64_t b = threadIdx.x; b < blocks; b += kThreads) {
    const int64_t begin = next_head(p, first_unit, all * b / blocks);
    const int64_t end = next_head(p, first_unit, all * (b + 1) / blocks);
    atomicMax(longest, static_cast<int>(end - begin));
  }
  __syncthreads();
  return *longest <= (all + blocks - 1) / blocks + kMerge;
}

// Where block `block` starts. Whole heads: at the next head that begins.
__device__ __forceinline__ int64_t start_of(const OneArguments& p, const int* first_unit, bool whole,
                                            int64_t block) {
  const int64_t all = int64_t{first_unit[p.tokens]} * p.kv_heads, blocks = blocks_for(all);
  if (block >= blocks) return all;
  const int64_t at = all * block / blocks;
  return whole ? next_head(p, first_unit, at) : at;
}

}  // namespace sluice::kernels::cuda

// How attention_one.cu shares out its work: units of 64 keys, in the order of (token, kv head, key), and the ranges of them
// that go to one block each. Numbers of units fit into an int: 2^31 units of 16 KiB are more than any memory.
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
  float* parts;        // [ranges, 2, kPartFloats]
  int32_t* arrivals;   // [tokens, kv_heads], zero before and after
  int32_t* tickets;    // [2]: ranges given out, blocks that asked in vain; zero before and after
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

// Units of one (token, head) that lie in one range; `units` has that head in all. None: the end of a block's work.
struct Piece {
  int token, head, unit, units, count, range;
};

// Units [first, last) of all, one (token, head) after the other.
struct Walk {
  const int* first_unit;  // [tokens + 1]; units of one kv head before each token
  int kv_heads, at, last;
  int token, head, unit, units;  // units: of this token and head

  __device__ __forceinline__ Walk(const int* first, int tokens, int heads, int begin, int end)
      : first_unit(first), kv_heads(heads), at(begin), last(end) {
    int low = 0, high = tokens - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (first_unit[middle] * kv_heads <= at) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    token = low;
    units = first_unit[low + 1] - first_unit[low];
    const int within = at - first_unit[low] * kv_heads;
    head = within / units;
    unit = within - head * units;
  }
  __device__ __forceinline__ bool live() const { return at < last; }
  // Units of this head that belong to the range.
  __device__ __forceinline__ int count() const { return last - at < units - unit ? last - at : units - unit; }
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

// `all` things in `parts` parts, of which the first are one longer where it does not come out even.
struct EvenParts {
  int parts, length, longer;

  __device__ __forceinline__ EvenParts(int all, int count)
      : parts(count), length(all / count), longer(all - length * count) {}
  __device__ __forceinline__ int start(int part) const {
    return part * length + (part < longer ? part : longer);
  }
  __device__ __forceinline__ int part_of(int thing) const {
    const int border = longer * (length + 1);
    return thing < border ? thing / (length + 1) : longer + (thing - border) / length;
  }
};

// The first unit from `at` on with which a head begins; `all` where there is none.
__device__ __forceinline__ int next_head(const OneArguments& p, const int* first_unit, int at) {
  const int all = first_unit[p.tokens] * p.kv_heads;
  if (at >= all) return all;
  const Walk walk(first_unit, p.tokens, p.kv_heads, at, all);
  return walk.unit == 0 ? at : at + walk.units - walk.unit;
}

// Whether heads are left whole: asked for, or because the block with the most to read then has little more than all have
// when heads are cut, and need not wait for the parts of others. `longest`: shared, zero before.
__device__ __forceinline__ bool leave_whole(const OneArguments& p, const int* first_unit,
                                            const EvenParts& even, int* longest) {
  // Units of a block: with fewer, a head is too long for one block; with more, the parts cost little.
  constexpr int kFewest = 8, kMost = 128;
  constexpr int kMerge = 2;  // units that are read while parts are merged
  if (p.whole != 0) return true;
  if (even.length < kFewest || even.length >= kMost) return false;
  for (int b = threadIdx.x; b < even.parts; b += kThreads) {
    const int begin = next_head(p, first_unit, even.start(b));
    const int end = next_head(p, first_unit, even.start(b + 1));
    atomicMax(longest, end - begin);
  }
  __syncthreads();
  return *longest <= even.length + 1 + kMerge;
}

// The units cut into ranges. The first are one for each block, equally long. Where there is much to read these leave some
// units over, in short ranges that go to whoever is done first: multiprocessors do not always read equally fast (on one
// H200 a fifth of them read a quarter more than the others), and none shall idle while others read.
constexpr int kMaxShort = 2048;
struct Ranges {
  int all;    // units
  int fixed;  // those of the blocks' own ranges
  EvenParts own;
  int count, length;  // ranges in all; units of a short one
  bool whole;

  __device__ __forceinline__ Ranges(const OneArguments& p, const int* first_unit, int* longest)
      : all(first_unit[p.tokens] * p.kv_heads),
        fixed(all),
        own(all, all < static_cast<int>(gridDim.x) ? all : static_cast<int>(gridDim.x)),
        count(own.parts),
        length(1),
        whole(leave_whole(p, first_unit, own, longest)) {
    constexpr int kMuch = 192;   // units of a block
    constexpr int kLength = 10;  // shorter ones cost more for their ends than they even out
    if (whole || own.length < kMuch) return;
    const int left = all / 8;
    length = (left + kMaxShort - 1) / kMaxShort;
    length = length < kLength ? kLength : length;
    fixed = all - left;
    own = EvenParts(fixed, own.parts);
    count = own.parts + (left + length - 1) / length;
  }
  // Where a range starts. Whole heads: at the next head that begins.
  __device__ __forceinline__ int start(const OneArguments& p, const int* first_unit, int range) const {
    if (range >= count) return all;
    if (range >= own.parts) return fixed + (range - own.parts) * length;
    return whole ? next_head(p, first_unit, own.start(range)) : own.start(range);
  }
  // The range of a unit, where heads are cut.
  __device__ __forceinline__ int range_of(int unit) const {
    return unit < fixed ? own.part_of(unit) : own.parts + (unit - fixed) / length;
  }
};

}  // namespace sluice::kernels::cuda

// Attention that takes every token for itself, made for steps that run one new token per sequence: cache in blocks of
// 16, 32 or 64 slots, head after head, in bf16 with heads of 64 or 128 elements or in fp8 with heads of 128, up to 8
// query heads per kv head; windows, softcap, sinks, alibi.
//
// A unit is 64 keys and values of one (token, kv head). The units of the step, in that order, are cut into equal
// shares, one per persistent block, so every multiprocessor reads the same number of bytes whatever the lengths are; where
// that comes out almost alike, heads are left whole. A producer warp keeps a ring of units full across the borders of
// heads and sequences, with plain copies of 2 KiB that lie in a row: boxes of a tensor map, in rows of 128 bytes, cost 8 %
// of the bandwidth. Four warps take 16 keys of a unit each: scores with mma m16n8k16 (keys are its rows, query heads its
// columns, those from `group` on zero), running maximum and sum, values with a second mma; they meet in shared memory at
// the end of a head. A head that several blocks share is merged by the last of them to finish, in the order of its keys.
// A large batch is held up by the card's power as much as by its memory, so every instruction counts.
//
// The cache of earlier steps may be read before the kernel in front has ended, since that one (which stores the new
// keys) lets this one start only after everything before it has ended; the unit with the new key waits. Reads keys and
// values once, from memory: 2 · 2 · Dim bytes per key and kv head (fp8: half of that; its elements become f16, which
// holds them all, on their way to an f16 mma). Copies of this kind alone come at 4.6 TB/s on an H200, the ceiling; with
// boxes and twice the instructions attention had 4.3 of them in its place in a step of 256 sequences at 1,500 tokens.
#include "kernels/cuda/attention_units.cuh"
#include "kernels/cuda/copy_engine.cuh"
#include "kernels/cuda/flash.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kMaxGroup = 8, kMaxTokens = 1024, kMaxProcessors = 256;
constexpr int kQuerySlots = 4;  // heads whose queries are there or on their way
constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kSlack = 8.0f, kLowest = -1e30f;

// Bytes: of an element of the cache.
template <int Dim, int Bytes>
struct Layout {
  static constexpr int kRowBytes = Dim * Bytes;
  // Keys that lie in a row, in memory and in a stage. Runs are 16 bytes further apart than they are long: the same piece of
  // keys of different runs is in different banks.
  static constexpr int kRunBytes = 2048, kRunPitch = kRunBytes + 16;
  static constexpr int kRun = kRunBytes / kRowBytes, kRuns = kKeys / kRun;
  static constexpr int kMatrixBytes = kRuns * kRunPitch;
  static constexpr int kStageBytes = 2 * kMatrixBytes, kStages = kRowBytes == 256 ? 6 : 11;
  static constexpr int kQueryBytes = kMaxGroup * Dim * 2;
  static constexpr int kPitch = Dim + 8;
  // From the start of shared memory.
  static constexpr int kQueries = kStages * kStageBytes;
  static constexpr int kValues = kQueries + kQuerySlots * kQueryBytes;
  static constexpr int kMaxima = kValues + kWarps * kMaxGroup * kPitch * 4;
  static constexpr int kSums = kMaxima + kWarps * kMaxGroup * 4;
  static constexpr int kBarriers = kSums + kWarps * kMaxGroup * 4;
  static constexpr int kPositions = kBarriers + 2 * (kStages + kQuerySlots) * 8;
  static constexpr int kFirstUnit = kPositions + kMaxTokens * 4;
  static constexpr int kShared = kFirstUnit + (kMaxTokens + 1) * 4 + 64;
  static_assert(kShared <= 232448, "shared memory of a block");
};

// One part of a head that several blocks share: values [group, Dim], then maxima, then sums.
constexpr int kPartMaxima = kMaxGroup * 128, kPartSums = kPartMaxima + kMaxGroup;
constexpr int kPartFloats = kPartSums + kMaxGroup;

__device__ __forceinline__ void load_matrices(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Four elements of fp8 as two pairs of f16.
__device__ __forceinline__ void widen_fp8(uint32_t four, uint32_t& low, uint32_t& high) {
  asm("{\n.reg .b16 a, b;\nmov.b32 {a, b}, %2;\ncvt.rn.f16x2.e4m3x2 %0, a;\ncvt.rn.f16x2.e4m3x2 %1, b;\n}"
      : "=r"(low), "=r"(high)
      : "r"(four));
}
__device__ __forceinline__ uint32_t pack_halves(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ void mma_f16(float* c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                        uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// Lane (g, t) gives elements 2 t and 2 t + 1 of row g and gets those of column g.
__device__ __forceinline__ uint32_t transpose(uint32_t pair) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}
// What is below the smallest normal number becomes zero.
__device__ __forceinline__ float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Keys of a unit: all count and nothing is done to their scores, or some do not.
enum class Keys { Plain, Any };

// One warp's share of a head. Of a unit it has 16 keys, the same few of every run. Lane (g, t) holds the scores of its keys
// g and g + 8 and elements g and g + 8 of every 16 of the values (fp8: 2 g and 2 g + 1), both of query heads 2 t and
// 2 t + 1 of those that share the kv head.
//
// A register of four fp8 elements is two of the mma's pairs. The scores take them in that order, with the query's
// elements in the same one: pair t of the first half is elements 4 t and 4 t + 1 of sixteen, of the second half the two
// after those. Values come transposed by pairs of elements, so of sixteen the even ones are the first eight rows.
template <int Dim, int Bytes>
struct Share {
  using L = Layout<Dim, Bytes>;
  // Scores are powers of two. A weight is that of the score less `base`, which is raised when a score is more than kSlack
  // above it: seldom.
  float base[2], sum[2], slope[2];
  float values[Dim / 16][4];
  uint32_t q[Dim / 16][2];

  // Where key `i` of the warp's 16 stands in the unit.
  static __device__ __forceinline__ int key_of(int warp, int i) {
    return i % L::kRuns * L::kRun + warp * (16 / L::kRuns) + i / L::kRuns;
  }
  // Address of 16 bytes of that key or value.
  static __device__ __forceinline__ uint32_t piece_of(uint32_t matrix, int warp, int i, int piece) {
    return matrix + i % L::kRuns * L::kRunPitch + (warp * (16 / L::kRuns) + i / L::kRuns) * L::kRowBytes +
           piece * 16;
  }

  __device__ __forceinline__ void start(const OneArguments& p, int head, const uint8_t* queries, int lane) {
    const int g = lane >> 2, t = lane & 3, group = p.group;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      base[h] = kLowest;
      sum[h] = 0.0f;
      slope[h] = p.alibi != nullptr && 2 * t + h < group ? p.alibi[head * group + 2 * t + h] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < Dim / 16; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) values[i][j] = 0.0f;
    const auto* row = reinterpret_cast<const uint32_t*>(queries + g * Dim * 2) + t;
#pragma unroll
    for (int k = 0; k < Dim / 16; ++k) {
      if constexpr (Bytes == 2) {
        q[k][0] = g < group ? row[k * 8] : 0u;
        q[k][1] = g < group ? row[k * 8 + 4] : 0u;
      } else {
        const uint32_t first = g < group ? row[k * 8 + t] : 0u, second = g < group ? row[k * 8 + t + 1] : 0u;
        q[k][0] = pack_halves(low_half(first), high_half(first));
        q[k][1] = pack_halves(low_half(second), high_half(second));
      }
    }
  }

  // Scores of the warp's keys, in two chains.
  __device__ __forceinline__ void multiply_keys(uint32_t stage, int warp, int lane, float (&even)[4],
                                                float (&odd)[4]) const {
    if constexpr (Bytes == 2) {
#pragma unroll
      for (int k = 0; k < Dim / 16; ++k) {
        uint32_t r[4];
        load_matrices(piece_of(stage, warp, lane & 15, 2 * k + (lane >> 4)), r);
        mma_bf16((k & 1) != 0 ? odd : even, r[0], r[1], r[2], r[3], q[k][0], q[k][1]);
      }
    } else {
#pragma unroll
      for (int k = 0; k < Dim / 16; k += 2) {
        uint32_t r[4], low[4], high[4];
        load_matrices(piece_of(stage, warp, lane & 15, k + (lane >> 4)), r);
#pragma unroll
        for (int i = 0; i < 4; ++i) widen_fp8(r[i], low[i], high[i]);
        mma_f16(even, low[0], low[1], high[0], high[1], q[k][0], q[k][1]);
        mma_f16(odd, low[2], low[3], high[2], high[3], q[k + 1][0], q[k + 1][1]);
      }
    }
  }

  // Adds the values of the warp's 16 keys, weighed by p0 and p1. What lies beyond the sequence is anything: zero
  // times that must be zero, so it is masked.
  template <Keys kKind>
  __device__ __forceinline__ void multiply_values(uint32_t matrix, int warp, int lane, uint32_t p0,
                                                  uint32_t p1, uint32_t mask0, uint32_t mask1) {
    const auto first = [&](uint32_t pair) { return kKind == Keys::Plain ? pair : pair & mask0; };
    const auto second = [&](uint32_t pair) { return kKind == Keys::Plain ? pair : pair & mask1; };
    if constexpr (Bytes == 2) {
#pragma unroll
      for (int i = 0; i < Dim / 16; ++i) {
        uint32_t r[4];
        load_matrices_transposed(piece_of(matrix, warp, lane & 15, 2 * i + (lane >> 4)), r);
        mma_bf16(values[i], first(r[0]), first(r[2]), second(r[1]), second(r[3]), p0, p1);
      }
    } else {
#pragma unroll
      for (int i = 0; i < Dim / 32; ++i) {
        uint32_t r[4];
        load_matrices_transposed(piece_of(matrix, warp, lane & 15, 2 * i + (lane >> 4)), r);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          uint32_t even[2], odd[2];
          widen_fp8(__byte_perm(r[2 * j], 0u, 0x3120), even[0], odd[0]);
          widen_fp8(__byte_perm(r[2 * j + 1], 0u, 0x3120), even[1], odd[1]);
          mma_f16(values[2 * i + j], first(even[0]), first(odd[0]), second(even[1]), second(odd[1]), p0, p1);
        }
      }
    }
  }

  // To the largest score so far.
  __device__ __forceinline__ void raise_base(const float (&s)[4]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = fmaxf(fmaxf(s[h], s[h + 2]), base[h]);
#pragma unroll
      for (int other = 4; other < 32; other *= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, other));
      const float keep = power_of_two(base[h] - largest);
      base[h] = largest;
      sum[h] *= keep;
#pragma unroll
      for (int i = 0; i < Dim / 16; ++i) values[i][h] *= keep, values[i][h + 2] *= keep;
    }
  }

  // The warp's 16 keys of the stage, of which those in [from, limit) count; the last of them is the token's own.
  template <Keys kKind>
  __device__ __forceinline__ void add(const OneArguments& p, uint32_t stage, int warp, int from, int limit,
                                      int lane) {
    const int g = lane >> 2, t = lane & 3;
    const auto counts = [&](int i) {
      const int key = key_of(warp, i);
      return kKind == Keys::Plain || (key >= from && key < limit);
    };
    float even[4] = {}, odd[4] = {}, s[4];
    multiply_keys(stage, warp, lane, even, odd);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = g + (j >> 1) * 8;
      if constexpr (kKind == Keys::Plain) {
        s[j] = (even[j] + odd[j]) * p.scale_of_powers;
      } else {
        float score = (even[j] + odd[j]) * p.scale;
        if (p.softcap > 0.0f) score = p.softcap * tanhf(score / p.softcap);
        score += slope[j & 1] * static_cast<float>(key_of(warp, i) + 1 - limit);
        s[j] = counts(i) ? score * kLog2E : -INFINITY;
      }
    }
    const float above = fmaxf(fmaxf(s[0], s[2]) - base[0], fmaxf(s[1], s[3]) - base[1]);
    if (__any_sync(0xffffffffu, above > kSlack)) raise_base(s);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      s[j] = power_of_two(s[j] - base[j & 1]);
      sum[j & 1] += s[j];
    }
    const auto pack = [](float low, float high) {
      return Bytes == 2 ? pack_pair(low, high) : pack_halves(low, high);
    };
    const auto mask = [&](int i) { return (counts(i) ? 0xffffu : 0u) | (counts(i + 1) ? 0xffff0000u : 0u); };
    multiply_values<kKind>(stage + L::kMatrixBytes, warp, lane, transpose(pack(s[0], s[1])),
                           transpose(pack(s[2], s[3])), mask(2 * t), mask(2 * t + 8));
  }

  __device__ __forceinline__ void hand_in(float* shared_values, float* maxima, float* sums, int warp,
                                          int group, int lane) {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int other = 4; other < 32; other *= 2) sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], other);
      const int head = 2 * t + h;
      if (head >= group) continue;
      if (g == 0) maxima[warp * kMaxGroup + head] = base[h], sums[warp * kMaxGroup + head] = sum[h];
      float* row = shared_values + (warp * kMaxGroup + head) * L::kPitch;
#pragma unroll
      for (int i = 0; i < Dim / 16; ++i) {
        if constexpr (Bytes == 2) {
          row[16 * i + g] = values[i][h];
          row[16 * i + g + 8] = values[i][h + 2];
        } else {
          *reinterpret_cast<float2*>(row + 16 * i + 2 * g) = make_float2(values[i][h], values[i][h + 2]);
        }
      }
    }
  }
};

__device__ __forceinline__ void sync_warps() {
  asm volatile("bar.sync 1, %0;" ::"n"(kWarps * 32) : "memory");
}

// Fills the ring; all lanes of the producer warp take part, one lane per run of keys or values.
template <int Dim, int Bytes>
__device__ __forceinline__ void produce(const OneArguments& p, uint32_t shared, Walk walk,
                                        const int* positions) {
  using L = Layout<Dim, Bytes>;
  const int lane = threadIdx.x % 32;
  const uint32_t full = shared + L::kBarriers, empty = full + 8 * L::kStages;
  const uint32_t query_full = empty + 8 * L::kStages, query_empty = query_full + 8 * kQuerySlots;
  const uint64_t policy = read_once_policy();
  const int per_unit = kKeys / p.table.block_size, run = lane % L::kRuns;
  const int part = run * L::kRun / p.table.block_size;
  const OneCache cache = lane < L::kRuns ? p.keys : p.values;
  const uint8_t* const source = cache.data + run * L::kRun % p.table.block_size * L::kRowBytes;
  const uint32_t place = lane / L::kRuns * L::kMatrixBytes + run * L::kRunPitch;
  const uint32_t query_bytes = static_cast<uint32_t>(p.group * Dim * 2);
  bool waited = false;
  int issued = 0, pieces = 0, queries = 0;
  const bf16* pending[kQuerySlots] = {};
  const auto send_queries = [&] {
    for (; queries < pieces; ++queries) {
      const int slot = queries % kQuerySlots;
      if (queries >= kQuerySlots) barrier_wait(query_empty + 8 * slot, ((queries / kQuerySlots) - 1) & 1);
      if (lane == 0) {
        barrier_expect(query_full + 8 * slot, query_bytes);
        copy_bytes(shared + L::kQueries + slot * L::kQueryBytes, pending[slot], query_bytes,
                   query_full + 8 * slot);
      }
    }
  };
  const auto wait = [&] {
    if (waited) return;
    wait_for_producer();
    waited = true;
  };
  for (; walk.live(); walk.next()) {
    if (pieces - queries == kQuerySlots) {
      wait();
      send_queries();
    }
    pending[pieces % kQuerySlots] = p.q + walk.token * p.q_stride + int64_t{walk.head} * p.group * Dim;
    ++pieces;
    if (waited) send_queries();
    const int position = positions[walk.token], blocks = position / p.table.block_size;
    const int32_t* row = p.table.blocks + p.table.row_begin[p.table.sequence[walk.token]];
    const auto entry = [&](int unit) {
      const int index = unit * per_unit + part;
      return row[index < blocks ? index : blocks];
    };
    const int begin = first_key(p, position) / kKeys + walk.unit, end = begin + walk.count();
    int32_t block = lane < 2 * L::kRuns ? entry(begin) : 0;
    for (int unit = begin; unit < end; ++unit, ++issued) {
      if (!waited && (p.whole != 0 || issued == L::kStages || (unit + 1) * kKeys > position)) {
        wait();
        send_queries();
      }
      const int stage = issued % L::kStages;
      if (issued >= L::kStages) barrier_wait(empty + 8 * stage, ((issued / L::kStages) - 1) & 1);
      // Runs that begin behind the token are left out.
      const int keys = position + 1 - unit * kKeys,
                runs = keys < kKeys ? (keys + L::kRun - 1) / L::kRun : L::kRuns;
      if (lane == 0) barrier_expect(full + 8 * stage, 2 * runs * L::kRunBytes);
      __syncwarp();
      if (lane < 2 * L::kRuns && run < runs) {
        copy_bytes(shared + stage * L::kStageBytes + place,
                   source + block * cache.stride_block + walk.head * cache.stride_head, L::kRunBytes,
                   full + 8 * stage, policy);
        if (unit + 1 < end) block = entry(unit + 1);
      }
    }
  }
  wait();
  send_queries();
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

// The warps' shares to the result, or to a part of it; the block that hands in the last part makes the result.
template <int Dim, int Bytes>
__device__ __forceinline__ void finish(const OneArguments& p, const Walk& walk, uint8_t* shared,
                                       int* last_one) {
  using L = Layout<Dim, Bytes>;
  const auto* values = reinterpret_cast<const float*>(shared + L::kValues);
  const auto* maxima = reinterpret_cast<const float*>(shared + L::kMaxima);
  const auto* sums = reinterpret_cast<const float*>(shared + L::kSums);
  const bool complete = walk.count() == walk.units;
  const auto sink_of = [&](int r) {
    return p.sinks != nullptr ? p.sinks[walk.head * p.group + r] * kLog2E : -INFINITY;
  };
  float* mine = p.parts + (int64_t{blockIdx.x} * 2 + (walk.unit == 0 ? 1 : 0)) * kPartFloats;
  bf16* out = p.out + walk.token * p.out_stride_n + int64_t{walk.head} * p.group * p.out_stride_h;
  for (int e = threadIdx.x * 4; e < p.group * Dim; e += kWarps * 32 * 4) {
    const int r = e / Dim, d = e % Dim;
    const Part part = merge<kWarps>(kWarps, [&](int w) {
      const int row = w * kMaxGroup + r;
      return Part{maxima[row], sums[row], *reinterpret_cast<const float4*>(values + row * L::kPitch + d)};
    });
    if (complete) {
      store_result(out + r * p.out_stride_h + d, part, sink_of(r));
      continue;
    }
    __stcg(reinterpret_cast<float4*>(mine + e), part.values);
    if (d == 0) __stcg(mine + kPartMaxima + r, part.maximum), __stcg(mine + kPartSums + r, part.sum);
  }
  if (complete) return;
  const int64_t all = int64_t{walk.first_unit[p.tokens]} * p.kv_heads, begin = walk.at - walk.unit;
  const auto block_of = [&](int64_t unit) { return ((unit + 1) * blocks_for(all) - 1) / all; };
  const int64_t first = block_of(begin), parts = block_of(begin + walk.units - 1) - first + 1;
  __threadfence();
  sync_warps();
  int32_t* arrivals = p.arrivals + walk.token * p.kv_heads + walk.head;
  if (threadIdx.x == 0) *last_one = atomicAdd(arrivals, 1) == parts - 1 ? 1 : 0;
  sync_warps();
  if (*last_one == 0) return;
  __threadfence();
  for (int e = threadIdx.x * 4; e < p.group * Dim; e += kWarps * 32 * 4) {
    const int r = e / Dim, d = e % Dim;
    const Part whole = merge<8>(static_cast<int>(parts), [&](int i) {
      const float* part = p.parts + ((first + i) * 2 + (i == 0 ? 1 : 0)) * kPartFloats;
      return Part{__ldcg(part + kPartMaxima + r), __ldcg(part + kPartSums + r),
                  __ldcg(reinterpret_cast<const float4*>(part + e))};
    });
    store_result(out + r * p.out_stride_h + d, whole, sink_of(r));
  }
  if (threadIdx.x == 0) *arrivals = 0;
}

template <int Dim, int Bytes>
__global__ void __launch_bounds__(kThreads, 1) one_kernel(const __grid_constant__ OneArguments p) {
  using L = Layout<Dim, Bytes>;
  extern __shared__ __align__(128) uint8_t shared[];
  const uint32_t base = shared_address(shared), full = base + L::kBarriers, empty = full + 8 * L::kStages;
  const uint32_t query_full = empty + 8 * L::kStages, query_empty = query_full + 8 * kQuerySlots;
  int* positions = reinterpret_cast<int*>(shared + L::kPositions);
  int* first_unit = reinterpret_cast<int*>(shared + L::kFirstUnit);
  int* scratch = first_unit + kMaxTokens + 1;
  allow_dependents();
  if (threadIdx.x == 0) {
    for (int s = 0; s < L::kStages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, kWarps);
    }
    for (int s = 0; s < kQuerySlots; ++s) {
      barrier_init(query_full + 8 * s, 1);
      barrier_init(query_empty + 8 * s, kWarps);
    }
    barriers_ready();
    scratch[9] = 0;
  }
  count_units(p, positions, first_unit, scratch);
  const bool whole = leave_whole(p, first_unit, scratch + 9);
  const int64_t begin = start_of(p, first_unit, whole, blockIdx.x),
                border = start_of(p, first_unit, whole, blockIdx.x + 1);
  if (begin >= border) return wait_for_producer();
  Walk walk(first_unit, p.tokens, p.kv_heads, begin, border);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == kWarps) return produce<Dim, Bytes>(p, base, walk, positions);

  wait_for_producer();
  Share<Dim, Bytes> share;
  const bool scores_plain = p.softcap == 0.0f && p.alibi == nullptr;
  int stage = 0, before = -1;
  uint32_t parity = 0;
  for (int piece = 0; walk.live(); walk.next(), ++piece) {
    const int slot = piece % kQuerySlots;
    barrier_wait(query_full + 8 * slot, (piece / kQuerySlots) & 1);
    share.start(p, walk.head, shared + L::kQueries + slot * L::kQueryBytes, lane);
    const int position = positions[walk.token], from = first_key(p, position), skipped = from / kKeys;
    const int end = skipped + walk.unit + walk.count();
    for (int unit = skipped + walk.unit; unit < end; ++unit) {
      barrier_wait(full + 8 * stage, parity);
      // A stage is given back one stage late: by then all reads of it have ended.
      __syncwarp();
      if (lane == 0 && before >= 0) barrier_arrive(empty + 8 * before);
      const int first = from - unit * kKeys, limit = position + 1 - unit * kKeys;
      const uint32_t at = base + stage * L::kStageBytes;
      if (scores_plain && first <= 0 && limit >= kKeys) {
        share.template add<Keys::Plain>(p, at, warp, first, limit, lane);
      } else {
        share.template add<Keys::Any>(p, at, warp, first, limit, lane);
      }
      before = stage;
      if (++stage == L::kStages) stage = 0, parity ^= 1u;
    }
    share.hand_in(reinterpret_cast<float*>(shared + L::kValues),
                  reinterpret_cast<float*>(shared + L::kMaxima), reinterpret_cast<float*>(shared + L::kSums),
                  warp, p.group, lane);
    sync_warps();
    if (lane == 0) barrier_arrive(query_empty + 8 * slot);
    finish<Dim, Bytes>(p, walk, shared, scratch + 8);
    sync_warps();
  }
}

template <int Dim, int Bytes>
void launch_dim(const OneParams& p, Stream stream) {
  using L = Layout<Dim, Bytes>;
  static const int processors = multiprocessors();
  static const cudaError_t attribute =
      cudaFuncSetAttribute(one_kernel<Dim, Bytes>, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kShared);
  check_launch(attribute, "attention");
  const AttentionParams& a = p.attention;
  const auto cache_of = [](const CacheView& cache) {
    return OneCache{static_cast<const uint8_t*>(cache.data), cache.stride_block * Bytes,
                    cache.stride_head * Bytes};
  };
  OneArguments arguments{};
  arguments.q = static_cast<const bf16*>(a.q.data);
  arguments.out = static_cast<bf16*>(a.out.data);
  arguments.parts = static_cast<float*>(p.workspace);
  arguments.arrivals =
      reinterpret_cast<int32_t*>(arguments.parts + int64_t{kMaxProcessors} * 2 * kPartFloats);
  arguments.keys = cache_of(a.k);
  arguments.values = cache_of(a.v);
  arguments.table = a.table;
  arguments.q_stride = a.q.stride_n;
  arguments.out_stride_n = a.out.stride_n;
  arguments.out_stride_h = a.out.stride_h;
  arguments.sinks = a.sinks;
  arguments.alibi = a.alibi;
  arguments.tokens = static_cast<int>(a.q.n);
  arguments.kv_heads = static_cast<int>(a.kv_heads);
  arguments.group = static_cast<int>(a.q.heads / a.kv_heads);
  arguments.window = a.window;
  arguments.scale = a.scale;
  arguments.scale_of_powers = a.scale * kLog2E;
  arguments.softcap = a.softcap;
  arguments.whole = p.whole;
  const int blocks = processors < kMaxProcessors ? processors : kMaxProcessors;
  const Grid grid{dim3(static_cast<unsigned>(blocks)), dim3(kThreads), L::kShared};
  launch("attention", one_kernel<Dim, Bytes>, grid, stream, arguments);
}

}  // namespace

size_t one_workspace_bytes() {
  return (size_t{kMaxProcessors} * 2 * kPartFloats + size_t{kMaxTokens} * kMaxKvHeads) * 4;
}

bool one_fits(const AttentionParams& p) {
  const int64_t group = p.kv_heads > 0 ? p.q.heads / p.kv_heads : 0;
  const auto cache_fits = [&](const CacheView& c) {
    const int64_t piece = c.type == DType::BF16 ? 8 : 16;  // elements of 16 bytes
    return (c.type == DType::BF16 || (c.type == DType::F8_E4M3 && c.dim == 128)) && aligned16(c.data) &&
           c.stride_slot == c.dim && c.stride_head % piece == 0 && c.stride_block % piece == 0;
  };
  const bool size = p.k.dim == p.v.dim && (p.k.dim == 64 || p.k.dim == 128) && group <= kMaxGroup &&
                    p.kv_heads <= kMaxKvHeads && p.q.n <= kMaxTokens && p.q.n > 0;
  const bool blocks = p.table.block_size == 16 || p.table.block_size == 32 || p.table.block_size == 64;
  const bool results = p.out.stride_n % 4 == 0 && p.out.stride_h % 4 == 0 && aligned16(p.out.data);
  const bool queries = aligned16(p.q.data) && p.q.stride_h == p.k.dim && p.q.stride_n % 8 == 0;
  return size && blocks && queries && results && cache_fits(p.k) && cache_fits(p.v);
}

void launch_one(const OneParams& p, Stream stream) {
  if (p.attention.k.type == DType::F8_E4M3) return launch_dim<128, 1>(p, stream);
  if (p.attention.k.dim == 64) return launch_dim<64, 2>(p, stream);
  launch_dim<128, 2>(p, stream);
}

}  // namespace sluice::kernels::cuda

// What one warp of decode_attention.cu does with the keys and values of a unit, and where these lie in shared memory.
#pragma once

#include "kernels/cuda/attention/decode_attention_params.cuh"

namespace sluice::kernels::cuda {

constexpr int kMaxGroup = 8, kMaxDim = 256, kMaxTokens = 1024;
constexpr int kPieceSlots = 4;  // pieces whose queries are there or on their way
constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kSlack = 8.0f, kLowest = -1e30f;

// Bytes: of an element of the cache. Half: as little shared memory as reads at full speed, instead of all.
template <int Dim, int Bytes, bool Half = false>
struct OneLayout {
  static constexpr int kDim = Dim, kBytes = Bytes;
  static constexpr int kRowBytes = Dim * Bytes;
  // Keys that lie in a row, in memory and in a stage. Runs are 16 bytes further apart than they are long: the same piece of
  // keys of different runs is in different banks.
  static constexpr int kRunBytes = 2048, kRunPitch = kRunBytes + 16;
  static constexpr int kRun = kRunBytes / kRowBytes, kRuns = kKeys / kRun;
  static constexpr int kMatrixBytes = kRuns * kRunPitch;
  static constexpr int kStageBytes = 2 * kMatrixBytes;
  // Whole: as many as fit. Rows of 512 bytes have no room for more than two, which are enough.
  static constexpr int kStages = kRowBytes == 512 ? 2 : (kRowBytes == 256 ? 6 : 11) / (Half ? 2 : 1);
  static constexpr int kQueryBytes = kMaxGroup * Dim * 2;
  static constexpr int kPitch = Dim + 4;
  // From the start of shared memory.
  static constexpr int kQueries = kStages * kStageBytes;
  static constexpr int kValues = kQueries + kPieceSlots * kQueryBytes;
  static constexpr int kMaxima = kValues + kWarps * kMaxGroup * kPitch * 4;
  static constexpr int kSums = kMaxima + kWarps * kMaxGroup * 4;
  static constexpr int kBarriers = kSums + kWarps * kMaxGroup * 4;
  static constexpr int kPositions = kBarriers + 2 * (kStages + kPieceSlots) * 8;
  static constexpr int kFirstUnit = kPositions + kMaxTokens * 4;
  static constexpr int kLastOne = kFirstUnit + (kMaxTokens + 1) * 4;
  static constexpr int kPieces = kLastOne + 12;
  static constexpr int kShared = kPieces + kPieceSlots * static_cast<int>(sizeof(Piece));
  static_assert(kPieces % 16 == 0, "pieces are stored as vectors");
  static_assert(kShared <= 232448, "shared memory of a block");
};

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
// Lane (g, t) gives elements 2 t and 2 t + 1 of row g and gets those of column g.
__device__ __forceinline__ uint32_t transpose_pairs(uint32_t pair) {
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

// Keys of a unit: all count and nothing is done to their scores; some do not count; anything. What the first two do to a
// key that counts is the same.
enum class Keys { Plain, Masked, Any };
// Keys [from, limit) of a unit count; the last of them is the token's own.
struct KeyRange {
  int from, limit;
};

// One warp's share of a head. Of a unit it has 16 keys, the same few of every run. Lane (g, t) holds the scores of its keys
// g and g + 8 and elements g and g + 8 of every 16 of the values (fp8: 2 g and 2 g + 1), both of query heads 2 t and
// 2 t + 1 of those that share the kv head.
//
// A register of four fp8 elements is two of the mma's pairs. The scores take them in that order, with the query's
// elements in the same one: pair t of the first half is elements 4 t and 4 t + 1 of sixteen, of the second half the two
// after those. Values come transposed by pairs of elements, so of sixteen the even ones are the first eight rows.
template <class L>
struct OneShare {
  static constexpr int Dim = L::kDim, Bytes = L::kBytes;
  // Scores are powers of two. A weight is that of the score less `base`, which is raised when a score is more than kSlack
  // above it: seldom.
  float base[2], sum[2], slope[2];
  float values[Dim / 16][4];
  uint32_t q[Dim / 16][2];

  // Where key `i` of the warp's 16 stands in the unit.
  static __device__ __forceinline__ int key_of(int warp, int i) {
    return i % L::kRuns * L::kRun + warp * (16 / L::kRuns) + i / L::kRuns;
  }
  // Address of 16 bytes of that key or value. A register by itself, which the loads add their constants to.
  static __device__ __forceinline__ uint32_t address_of(uint32_t matrix, int warp, int i, int part) {
    uint32_t address = matrix + i % L::kRuns * L::kRunPitch +
                       (warp * (16 / L::kRuns) + i / L::kRuns) * L::kRowBytes + part * 16;
    asm("" : "+r"(address));
    return address;
  }

  // Nothing seen yet. slopes: of heads 2 t and 2 t + 1.
  __device__ __forceinline__ void clear(const float (&slopes)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) base[h] = kLowest, sum[h] = 0.0f, slope[h] = slopes[h];
#pragma unroll
    for (int i = 0; i < Dim / 16; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) values[i][j] = 0.0f;
  }
  // Elements [16 k, 16 k + 16) of a query, of which the mma gives lane t these.
  static __device__ __forceinline__ uint2 query_pairs(const uint32_t* query, int k, int t) {
    if constexpr (Bytes == 2) return make_uint2(query[k * 8 + t], query[k * 8 + t + 4]);
    const uint32_t first = query[k * 8 + 2 * t], second = query[k * 8 + 2 * t + 1];
    return make_uint2(pack_halves(low_half(first), high_half(first)),
                      pack_halves(low_half(second), high_half(second)));
  }

  __device__ __forceinline__ void start(const OneArguments& p, int head, const uint8_t* queries, int lane) {
    const int g = lane >> 2, t = lane & 3, group = p.group;
    const auto slope_of = [&](int r) {
      return p.alibi != nullptr && r < group ? p.alibi[head * group + r] : 0.0f;
    };
    clear({slope_of(2 * t), slope_of(2 * t + 1)});
    const auto* row = reinterpret_cast<const uint32_t*>(queries + g * Dim * 2);
#pragma unroll
    for (int k = 0; k < Dim / 16; ++k) {
      const uint2 pairs = g < group ? query_pairs(row, k, t) : make_uint2(0u, 0u);
      q[k][0] = pairs.x, q[k][1] = pairs.y;
    }
  }

  // Scores of the warp's keys, in two chains.
  __device__ __forceinline__ void multiply_keys(uint32_t stage, int warp, int lane, float (&even)[4],
                                                float (&odd)[4]) const {
    const uint32_t keys = address_of(stage, warp, lane & 15, lane >> 4);
    if constexpr (Bytes == 2) {
#pragma unroll
      for (int k = 0; k < Dim / 16; ++k) {
        uint32_t r[4];
        load_matrices(keys + 32 * k, r);
        mma_bf16((k & 1) != 0 ? odd : even, r[0], r[1], r[2], r[3], q[k][0], q[k][1]);
      }
    } else {
#pragma unroll
      for (int k = 0; k < Dim / 16; k += 2) {
        uint32_t r[4], low[4], high[4];
        load_matrices(keys + 16 * k, r);
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
    // Twice 16 bytes of the first eight keys, then of the others: the order in which the MMA takes them.
    const uint32_t rows = address_of(matrix, warp, (lane >> 4) * 8 + (lane & 7), lane >> 3 & 1);
    if constexpr (Bytes == 2) {
#pragma unroll
      for (int i = 0; i < Dim / 16; ++i) {
        uint32_t r[4];
        load_matrices_transposed(rows + 32 * i, r);
        mma_bf16(values[i], first(r[0]), first(r[1]), second(r[2]), second(r[3]), p0, p1);
      }
    } else {
#pragma unroll
      for (int i = 0; i < Dim / 32; ++i) {
        uint32_t r[4];
        load_matrices_transposed(rows + 32 * i, r);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          uint32_t even[2], odd[2];
          widen_fp8(__byte_perm(r[j], 0u, 0x3120), even[0], odd[0]);
          widen_fp8(__byte_perm(r[j + 2], 0u, 0x3120), even[1], odd[1]);
          mma_f16(values[2 * i + j], first(even[0]), first(odd[0]), second(even[1]), second(odd[1]), p0, p1);
        }
      }
    }
  }

  // To the largest score so far, of which `largest` has this lane's; of the heads whose own scores ask for it.
  __device__ __forceinline__ void raise_base(const float (&largest)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = largest[h];
#pragma unroll
      for (int other = 4; other < 32; other *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, other));
      const float raised = top - base[h] > kSlack ? top : base[h], keep = power_of_two(base[h] - raised);
      base[h] = raised;
      sum[h] *= keep;
#pragma unroll
      for (int i = 0; i < Dim / 16; ++i) values[i][h] *= keep, values[i][h + 2] *= keep;
    }
  }

  // The weights of the warp's 16 keys, from their scores, as the second mma takes them. seen: of heads 2 t and 2 t + 1.
  template <Keys kKind>
  __device__ __forceinline__ uint2 weigh(const OneArguments& p, float (&s)[4], int warp,
                                         const KeyRange (&seen)[2], int lane) {
    const int g = lane >> 2;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int key = key_of(warp, g + (j >> 1) * 8);
      const KeyRange& range = seen[j & 1];
      if constexpr (kKind == Keys::Any) {
        s[j] *= p.scale;
        if (p.softcap > 0.0f) s[j] = p.softcap * tanhf(s[j] / p.softcap);
        s[j] = (s[j] + slope[j & 1] * static_cast<float>(key + 1 - range.limit)) * kLog2E;
      }
      if constexpr (kKind != Keys::Plain)
        if (key < range.from || key >= range.limit) s[j] = -INFINITY;
    }
    const float scale = kKind == Keys::Any ? 1.0f : p.scale_of_powers;
    const float largest[2] = {fmaxf(s[0], s[2]) * scale, fmaxf(s[1], s[3]) * scale};
    const float above = fmaxf(largest[0] - base[0], largest[1] - base[1]);
    if (__any_sync(0xffffffffu, above > kSlack)) raise_base(largest);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      s[j] = power_of_two(fmaf(s[j], scale, -base[j & 1]));
      sum[j & 1] += s[j];
    }
    const auto pack = [](float low, float high) {
      return Bytes == 2 ? pack_pair(low, high) : pack_halves(low, high);
    };
    return make_uint2(transpose_pairs(pack(s[0], s[1])), transpose_pairs(pack(s[2], s[3])));
  }

  // Which of the values of keys i and i + 1 of the warp's are of the sequence.
  static __device__ __forceinline__ uint32_t mask_of(int warp, int i, const KeyRange& range) {
    const auto counts = [&](int at) {
      const int key = key_of(warp, at);
      return key >= range.from && key < range.limit;
    };
    return (counts(i) ? 0xffffu : 0u) | (counts(i + 1) ? 0xffff0000u : 0u);
  }

  // The warp's 16 keys of the stage.
  template <Keys kKind>
  __device__ __forceinline__ void add(const OneArguments& p, uint32_t stage, int warp, const KeyRange& range,
                                      int lane) {
    float even[4] = {}, odd[4] = {}, s[4];
    multiply_keys(stage, warp, lane, even, odd);
#pragma unroll
    for (int j = 0; j < 4; ++j) s[j] = even[j] + odd[j];
    const uint2 weights = weigh<kKind>(p, s, warp, {range, range}, lane);
    const int t = lane & 3;
    multiply_values<kKind>(stage + L::kMatrixBytes, warp, lane, weights.x, weights.y,
                           mask_of(warp, 2 * t, range), mask_of(warp, 2 * t + 8, range));
  }

  __device__ __forceinline__ void merge_partial(float* shared_values, float* maxima, float* sums, int warp,
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

}  // namespace sluice::kernels::cuda

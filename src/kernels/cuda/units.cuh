// Units on the device: a lane's share of one, its fragments in bf16.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/units.h"

namespace sluice::kernels::cuda {

__device__ __forceinline__ uint32_t bf16_add(uint32_t a, uint32_t b) {
  uint32_t result;
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
__device__ __forceinline__ uint32_t bf16_mul(uint32_t a, uint32_t b) {
  uint32_t result;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
__device__ __forceinline__ uint32_t bf16_fma(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}
// Both halves the low, or the high, half of v.
__device__ __forceinline__ uint32_t low_twice(uint32_t v) {
  return __byte_perm(v, v, 0x1010);
}
__device__ __forceinline__ uint32_t high_twice(uint32_t v) {
  return __byte_perm(v, v, 0x3232);
}
__device__ __forceinline__ uint32_t word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
// (a & b) | c in one instruction.
__device__ __forceinline__ uint32_t and_or(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}
// By a constant; below zero: to the left.
__device__ __forceinline__ uint32_t shift_right(uint32_t v, int count) {
  return count >= 0 ? v >> count : v << -count;
}

// bf16 from 128 to 255 holds an integer in its low seven bits.
inline constexpr uint32_t kBf16Base = 0x43004300u;

// One scale of two that lie in a word, as f32 and as a pair.
__device__ __forceinline__ float one_of(uint32_t two, bool second) {
  return second ? high_half(two) : low_half(two);
}
__device__ __forceinline__ uint32_t twice_of(uint32_t two, bool second) {
  return second ? high_twice(two) : low_twice(two);
}

// load(): what lane 4g + t holds of a unit in shared or global memory. values(): its pairs, a[4 * slice + pair], without
// scales and kCentre (two bf16 to add, or 0) taken into account; pairs 0 and 2 are of row g, 1 and 3 of row g + 8. Scales
// and offsets of a group of columns, of row g or g + 8, as f32 or twice as bf16.
template <Units>
struct Unit;

// Of row g and then of row g + 8, in groups of 32 columns: scale, offset.
struct ScalesAndOffsets {
  static constexpr int kGroups = 2;
  static constexpr bool kOffset = true;
  uint4 scales;
  __device__ __forceinline__ uint32_t both(int group, int second) const {
    return word(scales, group + 2 * second);
  }
  __device__ __forceinline__ float scale(int group, int second) const {
    return low_half(both(group, second));
  }
  __device__ __forceinline__ uint32_t scale_twice(int group, int second) const {
    return low_twice(both(group, second));
  }
  __device__ __forceinline__ uint32_t offset_twice(int group, int second) const {
    return high_twice(both(group, second));
  }
};
// Of row g and then of row g + 8, in groups of 32 columns.
struct ScalesOf32 {
  static constexpr int kGroups = 2;
  static constexpr bool kOffset = false;
  uint2 scales;
  __device__ __forceinline__ uint32_t row(int second) const { return second != 0 ? scales.y : scales.x; }
  __device__ __forceinline__ float scale(int group, int second) const {
    return one_of(row(second), group == 1);
  }
  __device__ __forceinline__ uint32_t scale_twice(int group, int second) const {
    return twice_of(row(second), group == 1);
  }
};
// The same of groups of 16.
struct ScalesOf16 {
  static constexpr int kGroups = 4;
  static constexpr bool kOffset = false;
  uint4 scales;
  __device__ __forceinline__ float scale(int group, int second) const {
    return one_of(word(scales, group / 2 + 2 * second), group % 2 == 1);
  }
  __device__ __forceinline__ uint32_t scale_twice(int group, int second) const {
    return twice_of(word(scales, group / 2 + 2 * second), group % 2 == 1);
  }
};

// Word `slice` of a lane has pair j in bits 4j.. and 16 + 4j..
__device__ __forceinline__ uint32_t nibble_pair(const uint4& q, int pair) {
  return and_or(word(q, pair / 4) >> (4 * (pair % 4)), 0x000f000fu, kBf16Base);
}

template <>
struct Unit<Units::Q4Offset> : ScalesAndOffsets {
  static constexpr uint32_t kCentre = 0xc308c308u;  // -136
  uint4 q;

  __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
    q = *reinterpret_cast<const uint4*>(unit + lane * 16);
    scales = *reinterpret_cast<const uint4*>(unit + 512 + (lane >> 2) * 16);
  }
  __device__ __forceinline__ void values(const UnitTable&, uint32_t (&a)[16]) const {
#pragma unroll
    for (int pair = 0; pair < 16; ++pair) a[pair] = nibble_pair(q, pair);
  }
};

// Word `slice` of a lane has the nibbles of pair j in bits 8j..
template <>
struct Unit<Units::Q4Table> : ScalesOf32 {
  static constexpr uint32_t kCentre = 0;
  uint4 q;

  __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
    q = *reinterpret_cast<const uint4*>(unit + lane * 16);
    scales = *reinterpret_cast<const uint2*>(unit + 512 + (lane >> 2) * 8);
  }
  // One byte each of the numbers of four nibbles.
  static __device__ __forceinline__ uint32_t look_up(const uint32_t (&table)[4], uint32_t within,
                                                     uint32_t half) {
    return __byte_perm(__byte_perm(table[0], table[1], within), __byte_perm(table[2], table[3], within),
                       half);
  }
  __device__ __forceinline__ void values(const UnitTable& table, uint32_t (&a)[16]) const {
#pragma unroll
    for (int pair = 0; pair < 16; pair += 2) {
      const uint32_t nibbles = word(q, pair / 4) >> (8 * (pair % 4));
      const uint32_t within = nibbles & 0x7777u, half = and_or(nibbles >> 1, 0x4444u, 0x3210u);
      const uint32_t low = look_up(table.low, within, half), high = look_up(table.high, within, half);
      a[pair] = __byte_perm(low, high, 0x5140);
      a[pair + 1] = __byte_perm(low, high, 0x7362);
    }
  }
};

// Bits i and 16 + i of a lane's word of fifth bits belong to pair i.
template <>
struct Unit<Units::Q5Offset> : ScalesAndOffsets {
  static constexpr uint32_t kCentre = 0xc310c310u;  // -144
  uint4 q;
  uint32_t fifth;

  __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
    q = *reinterpret_cast<const uint4*>(unit + lane * 16);
    fifth = *reinterpret_cast<const uint32_t*>(unit + 512 + lane * 4);
    scales = *reinterpret_cast<const uint4*>(unit + 640 + (lane >> 2) * 16);
  }
  __device__ __forceinline__ void values(const UnitTable&, uint32_t (&a)[16]) const {
#pragma unroll
    for (int pair = 0; pair < 16; ++pair)
      a[pair] = and_or(shift_right(fifth, pair - 4), 0x00100010u, nibble_pair(q, pair));
  }
};

// Bits 2i.. and 16 + 2i.. of word h of a lane's upper bits belong to pair 8h + i.
template <>
struct Unit<Units::Q6> : ScalesOf16 {
  static constexpr uint32_t kCentre = 0xc320c320u;  // -160
  uint4 q;
  uint2 upper;

  __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
    q = *reinterpret_cast<const uint4*>(unit + lane * 16);
    upper = *reinterpret_cast<const uint2*>(unit + 512 + lane * 8);
    scales = *reinterpret_cast<const uint4*>(unit + 768 + (lane >> 2) * 16);
  }
  __device__ __forceinline__ void values(const UnitTable&, uint32_t (&a)[16]) const {
#pragma unroll
    for (int pair = 0; pair < 16; ++pair) {
      const uint32_t two = shift_right(pair < 8 ? upper.x : upper.y, 2 * (pair % 8) - 4);
      a[pair] = and_or(two, 0x00300030u, nibble_pair(q, pair));
    }
  }
};

// Words 2 * slice and 2 * slice + 1 of a lane: bytes 0 and 2 are an even pair, bytes 1 and 3 the odd one behind it. A
// byte's low seven bits are added to 128 for a start, and 128 or 256 taken off, as its sign says.
template <>
struct Unit<Units::Q8> : ScalesOf32 {
  static constexpr uint32_t kCentre = 0;
  uint4 q[2];

  __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
    q[0] = *reinterpret_cast<const uint4*>(unit + lane * 16);
    q[1] = *reinterpret_cast<const uint4*>(unit + 512 + lane * 16);
    scales = *reinterpret_cast<const uint2*>(unit + 1024 + (lane >> 2) * 8);
  }
  __device__ __forceinline__ void values(const UnitTable&, uint32_t (&a)[16]) const {
#pragma unroll
    for (int pair = 0; pair < 16; ++pair) {
      const uint32_t v = word(q[pair / 8], pair % 8 / 2) >> (8 * (pair & 1));
      a[pair] = bf16_add(and_or(v, 0x007f007fu, kBf16Base), and_or(v, 0x00800080u, 0xc300c300u));
    }
  }
};

// The pairs as the matrix has them, rounded to bf16.
template <class Held>
__device__ __forceinline__ void fragments(const Held& held, const UnitTable& table, uint32_t (&a)[16]) {
  held.values(table, a);
#pragma unroll
  for (int group = 0; group < Held::kGroups; ++group) {
    constexpr int kPairs = 16 / Held::kGroups;
    const uint32_t s[2] = {held.scale_twice(group, 0), held.scale_twice(group, 1)};
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      uint32_t& v = a[group * kPairs + i];
      if constexpr (Held::kCentre != 0) v = bf16_add(v, Held::kCentre);
      if constexpr (Held::kOffset) {
        v = bf16_fma(v, s[i & 1], held.offset_twice(group, i & 1));
      } else {
        v = bf16_mul(v, s[i & 1]);
      }
    }
  }
}

// acc[16 rows, 8 tokens] += unit · xᵀ, where b[slice] are the tokens' fragments. Sums of integers are scaled: that takes
// fewer instructions than to scale integers, and the matrix instructions it takes more of are not what a warp waits for.
template <class Held>
__device__ __forceinline__ void multiply_eight(const Held& held, const UnitTable& table,
                                               const uint32_t (&b)[4][2], float (&acc)[4]) {
  uint32_t a[16];
  held.values(table, a);
#pragma unroll
  for (int group = 0; group < Held::kGroups; ++group) {
    constexpr int kSlices = 4 / Held::kGroups;
    float sum[4] = {};
#pragma unroll
    for (int i = 0; i < kSlices; ++i) {
      const int s = group * kSlices + i;
      mma_bf16(sum, a[4 * s], a[4 * s + 1], a[4 * s + 2], a[4 * s + 3], b[s][0], b[s][1]);
      if constexpr (Held::kCentre != 0)
        mma_bf16(sum, Held::kCentre, Held::kCentre, Held::kCentre, Held::kCentre, b[s][0], b[s][1]);
      if constexpr (Held::kOffset) {
        const uint32_t first = held.offset_twice(group, 0), second = held.offset_twice(group, 1);
        mma_bf16(acc, first, second, first, second, b[s][0], b[s][1]);
      }
    }
    const float first = held.scale(group, 0), second = held.scale(group, 1);
    acc[0] += first * sum[0], acc[1] += first * sum[1];
    acc[2] += second * sum[2], acc[3] += second * sum[3];
  }
}

}  // namespace sluice::kernels::cuda

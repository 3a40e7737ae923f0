// Units on the device: a lane's share of one, its fragments in bf16.
#pragma once

#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/gemm/quantized/units.h"

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
  __device__ __forceinline__ float offset(int group, int second) const {
    return high_half(both(group, second));
  }
};
// Of row g and then of row g + 8, of all columns: scale, offset.
struct OneScaleAndOffset {
  static constexpr int kGroups = 1;
  static constexpr bool kOffset = true;
  uint2 scales;
  __device__ __forceinline__ uint32_t both(int second) const { return second != 0 ? scales.y : scales.x; }
  __device__ __forceinline__ float scale(int, int second) const { return low_half(both(second)); }
  __device__ __forceinline__ uint32_t scale_twice(int, int second) const { return low_twice(both(second)); }
  __device__ __forceinline__ uint32_t offset_twice(int, int second) const { return high_twice(both(second)); }
  __device__ __forceinline__ float offset(int, int second) const { return high_half(both(second)); }
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
  __device__ __forceinline__ float offset(int, int) const { return 0.0f; }
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
  __device__ __forceinline__ float offset(int, int) const { return 0.0f; }
};

// Word `slice` of a lane has pair j in bits 4j.. and 16 + 4j..
__device__ __forceinline__ uint32_t nibble_pair(const uint4& q, int pair) {
  return and_or(word(q, pair / 4) >> (4 * (pair % 4)), 0x000f000fu, kBf16Base);
}

template <>
struct Unit<Units::Q4Offset> : ScalesAndOffsets {
  static constexpr uint32_t kCentre = 0xc308c308u;  // -136
  static constexpr int kCentreValue = 136;
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

template <>
struct Unit<Units::Q4Group> : OneScaleAndOffset {
  static constexpr uint32_t kCentre = Unit<Units::Q4Offset>::kCentre;
  static constexpr int kCentreValue = Unit<Units::Q4Offset>::kCentreValue;
  uint4 q;

  __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
    q = *reinterpret_cast<const uint4*>(unit + lane * 16);
    scales = *reinterpret_cast<const uint2*>(unit + 512 + (lane >> 2) * 8);
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
  static constexpr int kCentreValue = 0;
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
  static constexpr int kCentreValue = 144;
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

// Words 3h to 3h + 2 of a lane's six hold pairs 8h to 8h + 7: each two of them, in bits 0.. and 6.., and of the last two
// pairs in bits 12..: the low four bits in the first and the third word, the high two in the second.
template <>
struct Unit<Units::Q6> : ScalesOf16 {
  static constexpr uint32_t kCentre = 0xc320c320u;  // -160
  static constexpr int kCentreValue = 160;
  uint4 q;
  uint2 more;

  __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
    q = *reinterpret_cast<const uint4*>(unit + lane * 16);
    more = *reinterpret_cast<const uint2*>(unit + 512 + lane * 8);
    scales = *reinterpret_cast<const uint4*>(unit + 768 + (lane >> 2) * 16);
  }
  __device__ __forceinline__ uint32_t of_six(int i) const {
    return i < 4 ? word(q, i) : i == 4 ? more.x : more.y;
  }
  __device__ __forceinline__ void values(const UnitTable&, uint32_t (&a)[16]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int i = 0; i < 6; ++i)
        a[8 * h + i] = and_or(of_six(3 * h + i / 2) >> (6 * (i % 2)), 0x003f003fu, kBf16Base);
      const uint32_t high = of_six(3 * h + 1);
      a[8 * h + 6] = and_or(high >> 8, 0x00300030u, and_or(of_six(3 * h) >> 12, 0x000f000fu, kBf16Base));
      a[8 * h + 7] = and_or(high >> 10, 0x00300030u, and_or(of_six(3 * h + 2) >> 12, 0x000f000fu, kBf16Base));
    }
  }
};

// Words 2 * slice and 2 * slice + 1 of a lane: bytes 0 and 2 are an even pair, bytes 1 and 3 the odd one behind it. A
// byte's low seven bits are added to 128 for a start, and 128 or 256 taken off, as its sign says.
template <>
struct Unit<Units::Q8> : ScalesOf32 {
  static constexpr uint32_t kCentre = 0;
  static constexpr int kCentreValue = 0;
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

// Sums of x over groups of columns, of the tokens whose sums a lane has; where a unit has a centre or offsets.
template <class Held>
struct GroupSums {
  static constexpr bool kNeeded = Held::kCentre != 0 || Held::kOffset;
  float of[Held::kGroups][4];

  // What keep() has stored for a lane with this t.
  __device__ __forceinline__ GroupSums(const float2* kept, int t) {
    if constexpr (!kNeeded) return;
#pragma unroll
    for (int group = 0; group < Held::kGroups; ++group) {
      const float2 two = kept[group * 4 + t];
      of[group][0] = two.x, of[group][1] = two.y;
    }
  }
  // REQUIRES: of one lane with each t.
  __device__ __forceinline__ void keep(float2* kept, int t) const {
#pragma unroll
    for (int group = 0; group < Held::kGroups; ++group)
      kept[group * 4 + t] = make_float2(of[group][0], of[group][1]);
  }
  __device__ __forceinline__ explicit GroupSums(const uint32_t (&b)[4][2]) {
    if constexpr (!kNeeded) return;
    constexpr uint32_t kOnes = 0x3f803f80u;
    constexpr int kSlices = 4 / Held::kGroups;
#pragma unroll
    for (int group = 0; group < Held::kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < 4; ++i) of[group][i] = 0.0f;
#pragma unroll
      for (int s = group * kSlices; s < (group + 1) * kSlices; ++s)
        mma_bf16(of[group], kOnes, kOnes, kOnes, kOnes, b[s][0], b[s][1]);
    }
  }
};

// acc[16 rows, 8 tokens] += unit · xᵀ, where b[slice] are the tokens' fragments. Sums of integers are scaled, and what
// centre and offset add is taken from the sums of x: that takes fewer instructions than to scale integers.
template <class Held>
__device__ __forceinline__ void multiply_eight(const Held& held, const UnitTable& table,
                                               const uint32_t (&b)[4][2], const GroupSums<Held>& x,
                                               float (&acc)[4]) {
  constexpr int kSlices = 4 / Held::kGroups;
  constexpr float kCentre = -static_cast<float>(Held::kCentreValue);
  uint32_t a[16];
  held.values(table, a);
#pragma unroll
  for (int group = 0; group < Held::kGroups; ++group) {
    float sum[4] = {};
#pragma unroll
    for (int s = group * kSlices; s < (group + 1) * kSlices; ++s)
      mma_bf16(sum, a[4 * s], a[4 * s + 1], a[4 * s + 2], a[4 * s + 3], b[s][0], b[s][1]);
    const float first = held.scale(group, 0), second = held.scale(group, 1);
    acc[0] += first * sum[0], acc[1] += first * sum[1];
    acc[2] += second * sum[2], acc[3] += second * sum[3];
    if constexpr (GroupSums<Held>::kNeeded) {
      const float low = kCentre * first + held.offset(group, 0),
                  high = kCentre * second + held.offset(group, 1);
      acc[0] += low * x.of[group][0], acc[1] += low * x.of[group][1];
      acc[2] += high * x.of[group][0], acc[3] += high * x.of[group][1];
    }
  }
}

}  // namespace sluice::kernels::cuda

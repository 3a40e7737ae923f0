// The weight types on the device: eight consecutive elements of a stored row as f32, the same values as
// dequantize_row of tensor/blocks.h. `k` is the first element, a multiple of 8; eight elements never straddle a
// scale.
#pragma once

#include <cuda_fp8.h>

#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/common/params.h"
#include "tensor/float_tables.h"
#include "tensor/grids.h"

namespace sluice::kernels::cuda {

__device__ __forceinline__ float half_at(const uint8_t* p) {
  return __half2float(__ushort_as_half(*reinterpret_cast<const uint16_t*>(p)));
}
// Eight bytes from an address that is even.
__device__ __forceinline__ uint2 bytes8(const uint8_t* p) {
  const uint16_t* s = reinterpret_cast<const uint16_t*>(p);
  return make_uint2(s[0] | uint32_t{s[1]} << 16, s[2] | uint32_t{s[3]} << 16);
}
__device__ __forceinline__ uint32_t byte_of(uint2 v, int j) {
  return ((j < 4 ? v.x : v.y) >> (8 * (j & 3))) & 0xffu;
}

__device__ constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};
__device__ constexpr int8_t kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

template <DType Type>
struct Decoder;

template <>
struct Decoder<DType::F32> {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] = reinterpret_cast<const float*>(row)[k + j];
  }
};
template <>
struct Decoder<DType::F16> {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] = half_at(row + 2 * (k + j));
  }
};
template <>
struct Decoder<DType::BF16> {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
    unpack8(load_weight(row + 2 * k), f);
  }
};
template <>
struct Decoder<DType::F8_E4M3> {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const uint32_t bits = row[k + j];
      const int exponent = (bits >> 3) & 0xf;
      const float mantissa = static_cast<float>(bits & 7u);
      float magnitude = exponent == 0 ? ldexpf(mantissa, -9) : ldexpf(8.0f + mantissa, exponent - 10);
      if ((bits & 0x7fu) == 0x7fu) magnitude = __uint_as_float(0x7fc00000u);
      f[j] = (bits & 0x80u) != 0 ? -magnitude : magnitude;
    }
  }
};

// Nibbles of a block of 32: elements 0..15 are the low halves of 16 bytes, 16..31 the high halves.
__device__ __forceinline__ uint32_t nibble(uint2 bytes, int j, bool high) {
  return high ? byte_of(bytes, j) >> 4 : byte_of(bytes, j) & 0xfu;
}

template <>
struct Decoder<DType::Q4_0> {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
    const uint8_t* b = row + k / 32 * 18;
    const float d = half_at(b);
    const uint2 q = bytes8(b + 2 + k % 16);
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] = d * (static_cast<float>(nibble(q, j, k % 32 >= 16)) - 8.0f);
  }
};
template <>
struct Decoder<DType::Q4_1> {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
    const uint8_t* b = row + k / 32 * 20;
    const float d = half_at(b), m = half_at(b + 2);
    const uint2 q = bytes8(b + 4 + k % 16);
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] = d * static_cast<float>(nibble(q, j, k % 32 >= 16)) + m;
  }
};
__device__ __forceinline__ uint32_t word_at(const uint8_t* p) {
  const uint16_t* s = reinterpret_cast<const uint16_t*>(p);
  return s[0] | uint32_t{s[1]} << 16;
}
template <>
struct Decoder<DType::Q5_0> {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
    const uint8_t* b = row + k / 32 * 22;
    const float d = half_at(b);
    const uint32_t fifth = word_at(b + 2) >> (k % 32);
    const uint2 q = bytes8(b + 6 + k % 16);
#pragma unroll
    for (int j = 0; j < 8; ++j)
      f[j] = d * (static_cast<float>(nibble(q, j, k % 32 >= 16) | ((fifth >> j) & 1u) << 4) - 16.0f);
  }
};
template <>
struct Decoder<DType::Q5_1> {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
    const uint8_t* b = row + k / 32 * 24;
    const float d = half_at(b), m = half_at(b + 2);
    const uint32_t fifth = word_at(b + 4) >> (k % 32);
    const uint2 q = bytes8(b + 8 + k % 16);
#pragma unroll
    for (int j = 0; j < 8; ++j)
      f[j] = d * static_cast<float>(nibble(q, j, k % 32 >= 16) | ((fifth >> j) & 1u) << 4) + m;
  }
};
template <>
struct Decoder<DType::Q8_0> {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
    const uint8_t* b = row + k / 32 * 34;
    const float d = half_at(b);
    const uint2 q = bytes8(b + 2 + k % 32);
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] = d * static_cast<float>(static_cast<int8_t>(byte_of(q, j)));
  }
};
template <>
struct Decoder<DType::Q2_K> {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
    const uint8_t* b = row + k / 256 * 84;
    const int e = static_cast<int>(k % 256), half = e / 128, j0 = e % 128 / 32, l = e % 32;
    const uint32_t scale = b[half * 8 + j0 * 2 + l / 16];
    const float d = half_at(b + 80) * static_cast<float>(scale & 0xfu);
    const float m = half_at(b + 82) * static_cast<float>(scale >> 4);
    const uint2 q = bytes8(b + 16 + half * 32 + l);
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] = d * static_cast<float>((byte_of(q, j) >> (2 * j0)) & 3u) - m;
  }
};
template <>
struct Decoder<DType::Q3_K> {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
    const uint8_t* b = row + k / 256 * 110;
    const int e = static_cast<int>(k % 256), half = e / 128, j0 = e % 128 / 32, l = e % 32;
    const int index = half * 8 + j0 * 2 + l / 16;
    const uint32_t low = index < 8 ? b[96 + index] & 0xfu : b[96 + index - 8] >> 4;
    const uint32_t high = (b[104 + index % 4] >> (2 * (index / 4))) & 3u;
    const float d = half_at(b + 108) * (static_cast<float>(low | high << 4) - 32.0f);
    const uint2 q = bytes8(b + 32 + half * 32 + l), mask = bytes8(b + l);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float offset = ((byte_of(mask, j) >> (half * 4 + j0)) & 1u) != 0 ? 0.0f : 4.0f;
      f[j] = d * (static_cast<float>((byte_of(q, j) >> (2 * j0)) & 3u) - offset);
    }
  }
};
// 6-bit scale and minimum of sub-block `index` of a 4- or 5-bit super-block.
__device__ __forceinline__ void scale_and_min(const uint8_t* s, int index, float& scale, float& minimum) {
  if (index < 4) {
    scale = static_cast<float>(s[index] & 63u);
    minimum = static_cast<float>(s[index + 4] & 63u);
  } else {
    scale = static_cast<float>((s[index + 4] & 0xfu) | (s[index - 4] >> 6) << 4);
    minimum = static_cast<float>((s[index + 4] >> 4) | (s[index] >> 6) << 4);
  }
}
template <>
struct Decoder<DType::Q4_K> {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
    const uint8_t* b = row + k / 256 * 144;
    const int e = static_cast<int>(k % 256), l = e % 32;
    float scale, minimum;
    scale_and_min(b + 4, e / 32, scale, minimum);
    const float d = half_at(b) * scale, m = half_at(b + 2) * minimum;
    const uint2 q = *reinterpret_cast<const uint2*>(b + 16 + e / 64 * 32 + l);
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] = d * static_cast<float>(nibble(q, j, e % 64 >= 32)) - m;
  }
};
template <>
struct Decoder<DType::Q5_K> {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
    const uint8_t* b = row + k / 256 * 176;
    const int e = static_cast<int>(k % 256), l = e % 32;
    float scale, minimum;
    scale_and_min(b + 4, e / 32, scale, minimum);
    const float d = half_at(b) * scale, m = half_at(b + 2) * minimum;
    const uint2 fifth = *reinterpret_cast<const uint2*>(b + 16 + l);
    const uint2 q = *reinterpret_cast<const uint2*>(b + 48 + e / 64 * 32 + l);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const uint32_t bit = (byte_of(fifth, j) >> (e / 32)) & 1u;
      f[j] = d * static_cast<float>(nibble(q, j, e % 64 >= 32) | bit << 4) - m;
    }
  }
};
template <>
struct Decoder<DType::Q6_K> {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
    const uint8_t* b = row + k / 256 * 210;
    const int e = static_cast<int>(k % 256), half = e / 128, j0 = e % 128 / 32, l = e % 32;
    const float d =
        half_at(b + 208) * static_cast<float>(static_cast<int8_t>(b[192 + half * 8 + l / 16 + 2 * j0]));
    const uint2 q = bytes8(b + half * 64 + (j0 & 1) * 32 + l), high = bytes8(b + 128 + half * 32 + l);
#pragma unroll
    for (int j = 0; j < 8; ++j)
      f[j] = d *
             (static_cast<float>(nibble(q, j, j0 >= 2) | ((byte_of(high, j) >> (2 * j0)) & 3u) << 4) - 32.0f);
  }
};
template <>
struct Decoder<DType::IQ4_NL> {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
    const uint8_t* b = row + k / 32 * 18;
    const float d = half_at(b);
    const uint2 q = bytes8(b + 2 + k % 16);
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] = d * static_cast<float>(kIq4Values[nibble(q, j, k % 32 >= 16)]);
  }
};
template <>
struct Decoder<DType::MXFP4> {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
    const uint8_t* b = row + k / 32 * 17;
    const float d = ldexpf(1.0f, static_cast<int>(b[0]) - 128);
    const uint8_t* q = b + 1 + k % 16;
#pragma unroll
    for (int j = 0; j < 8; ++j)
      f[j] = d * static_cast<float>(kFp4Values[k % 32 >= 16 ? q[j] >> 4 : q[j] & 0xf]);
  }
};

template <>
struct Decoder<DType::Q4_Z> {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
    const uint8_t* b = row + k / 32 * 20;
    const float d = half_at(b), zero = half_at(b + 2);
    const uint2 q = bytes8(b + 4 + k % 16);
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] = d * (static_cast<float>(nibble(q, j, k % 32 >= 16)) - zero);
  }
};
template <>
struct Decoder<DType::F4_16> {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
    const uint8_t* b = row + k / 32 * 20;
    const float d = half_at(b + k % 32 / 16 * 2);
    const uint2 q = bytes8(b + 4 + k % 16);
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] = d * static_cast<float>(kFp4Values[nibble(q, j, k % 32 >= 16)]);
  }
};

// The values that the nibbles of a type with a table of floats stand for.
template <DType Type>
struct FloatValues {
  float values[16];
  constexpr FloatValues() : values{} {
    for (int i = 0; i < 16; ++i) values[i] = float_table(Type)[static_cast<size_t>(i)];
  }
};
template <DType Type>
__device__ constexpr FloatValues<Type> kFloatValues{};

template <DType Type>
struct FloatTableDecoder {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
    const uint8_t* b = row + k / 32 * 18;
    const float d = half_at(b);
    const uint2 q = bytes8(b + 2 + k % 16);
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] = d * kFloatValues<Type>.values[nibble(q, j, k % 32 >= 16)];
  }
};
template <>
struct Decoder<DType::NF4> : FloatTableDecoder<DType::NF4> {};
template <>
struct Decoder<DType::FP4> : FloatTableDecoder<DType::FP4> {};

// The values that the nibbles of a G4 type stand for.
template <DType Type>
struct GridValues {
  int8_t values[16];
  constexpr GridValues() : values{} {
    for (int i = 0; i < 16; ++i) values[i] = grid_value(Type, i);
  }
};
template <DType Type>
__device__ constexpr GridValues<Type> kGridValues{};

template <DType Type>
struct GridDecoder {
  static constexpr float kFactor = grid_factor(Type);
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
    const uint8_t* b = row + k / 256 * 146;
    const int e = static_cast<int>(k % 256);
    const float d = half_at(b) * kFactor * static_cast<float>(static_cast<int8_t>(b[2 + e / 16]));
    const uint2 q = bytes8(b + 18 + e / 64 * 32 + e % 32);
#pragma unroll
    for (int j = 0; j < 8; ++j)
      f[j] = d * static_cast<float>(kGridValues<Type>.values[nibble(q, j, e % 64 >= 32)]);
  }
};
template <>
struct Decoder<DType::G4_NL> : GridDecoder<DType::G4_NL> {};
template <>
struct Decoder<DType::G4_2> : GridDecoder<DType::G4_2> {};
template <>
struct Decoder<DType::G4_3X> : GridDecoder<DType::G4_3X> {};
template <>
struct Decoder<DType::G4_3S> : GridDecoder<DType::G4_3S> {};

// A row of scaled fp8.
struct ScaledFp8 {
  static __device__ __forceinline__ void dequantize8(const uint8_t* row, int64_t k, float* f) {
    const float scale = *reinterpret_cast<const float*>(row);
    const uint2 v = *reinterpret_cast<const uint2*>(row + kFp8Header + k);
    const uint32_t words[2] = {v.x, v.y};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const auto pair = static_cast<__nv_fp8x2_storage_t>(words[j / 2] >> (16 * (j % 2)));
      const __half2 half = __nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3);
      f[2 * j] = scale * __low2float(half);
      f[2 * j + 1] = scale * __high2float(half);
    }
  }
};

// Calls visit with the Decoder of a type that can lie on the device; false for any other.
template <class Visit>
bool visit_packed(DType type, Visit visit) {
  switch (type) {
    case DType::BF16:
      visit(Decoder<DType::BF16>{});
      return true;
    case DType::Q4_0:
      visit(Decoder<DType::Q4_0>{});
      return true;
    case DType::Q4_1:
      visit(Decoder<DType::Q4_1>{});
      return true;
    case DType::Q5_0:
      visit(Decoder<DType::Q5_0>{});
      return true;
    case DType::Q5_1:
      visit(Decoder<DType::Q5_1>{});
      return true;
    case DType::Q8_0:
      visit(Decoder<DType::Q8_0>{});
      return true;
    case DType::Q2_K:
      visit(Decoder<DType::Q2_K>{});
      return true;
    case DType::Q3_K:
      visit(Decoder<DType::Q3_K>{});
      return true;
    case DType::Q4_K:
      visit(Decoder<DType::Q4_K>{});
      return true;
    case DType::Q5_K:
      visit(Decoder<DType::Q5_K>{});
      return true;
    case DType::Q6_K:
      visit(Decoder<DType::Q6_K>{});
      return true;
    case DType::IQ4_NL:
      visit(Decoder<DType::IQ4_NL>{});
      return true;
    case DType::MXFP4:
      visit(Decoder<DType::MXFP4>{});
      return true;
    case DType::Q4_Z:
      visit(Decoder<DType::Q4_Z>{});
      return true;
    case DType::F4_16:
      visit(Decoder<DType::F4_16>{});
      return true;
    case DType::NF4:
      visit(Decoder<DType::NF4>{});
      return true;
    case DType::FP4:
      visit(Decoder<DType::FP4>{});
      return true;
    case DType::G4_NL:
      visit(Decoder<DType::G4_NL>{});
      return true;
    case DType::G4_2:
      visit(Decoder<DType::G4_2>{});
      return true;
    case DType::G4_3X:
      visit(Decoder<DType::G4_3X>{});
      return true;
    case DType::G4_3S:
      visit(Decoder<DType::G4_3S>{});
      return true;
    default:
      return false;
  }
}
// The same for a matrix on the device.
template <class Visit>
bool visit_matrix(const Matrix& matrix, Visit visit) {
  if (matrix.scales == nullptr) return visit_packed(matrix.type, visit);
  visit(ScaledFp8{});
  return true;
}
// The same for every weight type of a file.
template <class Visit>
bool visit_stored(DType type, Visit visit) {
  switch (type) {
    case DType::F32:
      visit(Decoder<DType::F32>{});
      return true;
    case DType::F16:
      visit(Decoder<DType::F16>{});
      return true;
    case DType::F8_E4M3:
      visit(Decoder<DType::F8_E4M3>{});
      return true;
    default:
      return visit_packed(type, visit);
  }
}

}  // namespace sluice::kernels::cuda

// Block types to units, when they are loaded, and units to rows of bf16, for GEMMs of many tokens.
//
// A warp makes a unit of blocks, each lane its own pairs, one element after the other. Of the way back a warp makes 16
// rows x 64 columns, in pieces of 16 bytes: bytes of the units in, two per element out.
#include "kernels/cuda/common/dequantize.cuh"
#include "kernels/cuda/gemm/quantized/units.cuh"
#include "kernels/cuda/gemm/quantized/units_gemm.h"
#include "tensor/float_tables.h"
#include "tensor/half.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// An element of a block: value = scale * (q - centre) + offset, the centre being that of its units.
struct Quantum {
  uint32_t q;
  float scale, offset;
};

template <DType Type>
__device__ Quantum quantum(const uint8_t* row, int64_t k);

__device__ __forceinline__ uint32_t nibble_of(const uint8_t* bytes, int k) {
  return k % 32 < 16 ? bytes[k % 16] & 0xfu : bytes[k % 16] >> 4;
}
template <>
__device__ Quantum quantum<DType::Q4_0>(const uint8_t* row, int64_t k) {
  const uint8_t* b = row + k / 32 * 18;
  return {nibble_of(b + 2, static_cast<int>(k % 32)), half_at(b), 0.0f};
}
template <>
__device__ Quantum quantum<DType::IQ4_NL>(const uint8_t* row, int64_t k) {
  return quantum<DType::Q4_0>(row, k);
}
template <>
__device__ Quantum quantum<DType::NF4>(const uint8_t* row, int64_t k) {
  return quantum<DType::Q4_0>(row, k);
}
template <>
__device__ Quantum quantum<DType::FP4>(const uint8_t* row, int64_t k) {
  return quantum<DType::Q4_0>(row, k);
}
template <>
__device__ Quantum quantum<DType::MXFP4>(const uint8_t* row, int64_t k) {
  const uint8_t* b = row + k / 32 * 17;
  return {nibble_of(b + 1, static_cast<int>(k % 32)), ldexpf(1.0f, static_cast<int>(b[0]) - 128), 0.0f};
}
template <>
__device__ Quantum quantum<DType::Q4_1>(const uint8_t* row, int64_t k) {
  const uint8_t* b = row + k / 32 * 20;
  const float d = half_at(b);
  return {nibble_of(b + 4, static_cast<int>(k % 32)), d, half_at(b + 2) + 8.0f * d};
}
template <>
__device__ Quantum quantum<DType::Q4_Z>(const uint8_t* row, int64_t k) {
  const uint8_t* b = row + k / 32 * 20;
  const float d = half_at(b);
  return {nibble_of(b + 4, static_cast<int>(k % 32)), d, (8.0f - half_at(b + 2)) * d};
}
template <>
__device__ Quantum quantum<DType::Q5_0>(const uint8_t* row, int64_t k) {
  const uint8_t* b = row + k / 32 * 22;
  const int e = static_cast<int>(k % 32);
  return {nibble_of(b + 6, e) | (word_at(b + 2) >> e & 1u) << 4, half_at(b), 0.0f};
}
template <>
__device__ Quantum quantum<DType::Q5_1>(const uint8_t* row, int64_t k) {
  const uint8_t* b = row + k / 32 * 24;
  const int e = static_cast<int>(k % 32);
  const float d = half_at(b);
  return {nibble_of(b + 8, e) | (word_at(b + 4) >> e & 1u) << 4, d, half_at(b + 2) + 16.0f * d};
}
template <>
__device__ Quantum quantum<DType::Q8_0>(const uint8_t* row, int64_t k) {
  const uint8_t* b = row + k / 32 * 34;
  return {b[2 + k % 32], half_at(b), 0.0f};
}
template <>
__device__ Quantum quantum<DType::Q4_K>(const uint8_t* row, int64_t k) {
  const uint8_t* b = row + k / 256 * 144;
  const int e = static_cast<int>(k % 256);
  float scale, minimum;
  scale_and_min(b + 4, e / 32, scale, minimum);
  const float d = half_at(b) * scale;
  const uint32_t byte = b[16 + e / 64 * 32 + e % 32];
  return {e % 64 < 32 ? byte & 0xfu : byte >> 4, d, 8.0f * d - half_at(b + 2) * minimum};
}
template <>
__device__ Quantum quantum<DType::Q5_K>(const uint8_t* row, int64_t k) {
  const uint8_t* b = row + k / 256 * 176;
  const int e = static_cast<int>(k % 256);
  float scale, minimum;
  scale_and_min(b + 4, e / 32, scale, minimum);
  const float d = half_at(b) * scale;
  const uint32_t byte = b[48 + e / 64 * 32 + e % 32], fifth = b[16 + e % 32] >> (e / 32) & 1u;
  return {(e % 64 < 32 ? byte & 0xfu : byte >> 4) | fifth << 4, d, 16.0f * d - half_at(b + 2) * minimum};
}
template <>
__device__ Quantum quantum<DType::Q6_K>(const uint8_t* row, int64_t k) {
  const uint8_t* b = row + k / 256 * 210;
  const int e = static_cast<int>(k % 256), half = e / 128, j = e % 128 / 32, l = e % 32;
  const uint32_t byte = b[half * 64 + (j & 1) * 32 + l], upper = b[128 + half * 32 + l] >> (2 * j) & 3u;
  const float scale = static_cast<float>(static_cast<int8_t>(b[192 + half * 8 + l / 16 + 2 * j]));
  return {(j < 2 ? byte & 0xfu : byte >> 4) | upper << 4, half_at(b + 208) * scale, 0.0f};
}

__device__ __forceinline__ uint16_t bits_of(float value) {
  return __bfloat16_as_ushort(__float2bfloat16(value));
}

// Two numbers of six bits, in bits 0.. and 16.. of `both`.
__device__ __forceinline__ void store_six(uint32_t* words, int lane, int pair, uint32_t both) {
  const auto of_six = [&](int i) -> uint32_t& {
    return words[i < 4 ? lane * 4 + i : 128 + lane * 2 + i - 4];
  };
  const int h = pair / 8, i = pair % 8;
  if (i < 6) {
    of_six(3 * h + i / 2) |= both << (6 * (i % 2));
  } else {
    of_six(i == 6 ? 3 * h : 3 * h + 2) |= (both & 0x000f000fu) << 12;
    of_six(3 * h + 1) |= (both & 0x00300030u) << (i == 6 ? 8 : 10);
  }
}

// Of the two elements of a lane's pair number `pair`, 4 * slice + j.
template <Units U>
__device__ __forceinline__ void store_pair(uint8_t* unit, int lane, int pair, uint32_t first,
                                           uint32_t second) {
  auto* words = reinterpret_cast<uint32_t*>(unit);
  const int slice = pair / 4, j = pair % 4;
  if constexpr (U == Units::Q8) {
    words[slice / 2 * 128 + lane * 4 + slice % 2 * 2 + j / 2] |= (first | second << 16) << (8 * (j & 1));
  } else if constexpr (U == Units::Q4Table) {
    words[lane * 4 + slice] |= (first | second << 4) << (8 * j);
  } else if constexpr (U == Units::Q6) {
    store_six(words, lane, pair, first | second << 16);
  } else {
    words[lane * 4 + slice] |= ((first & 0xfu) | (second & 0xfu) << 16) << (4 * j);
  }
  const uint32_t above = first >> 4 | second >> 4 << 16;
  if constexpr (U == Units::Q5Offset) words[128 + lane] |= above << pair;
}

// A scale belongs to the lanes of a row; those with t = 0 store it.
template <Units U>
__device__ __forceinline__ void store_scale(uint8_t* unit, int g, int pair, const Quantum& one) {
  const int slice = pair / 4, second = pair & 1;
  if constexpr (U == Units::Q4Offset || U == Units::Q5Offset) {
    auto* to = reinterpret_cast<uint16_t*>(unit + (U == Units::Q5Offset ? 640 : 512));
    to[g * 8 + second * 4 + slice / 2 * 2] = bits_of(one.scale);
    to[g * 8 + second * 4 + slice / 2 * 2 + 1] = bits_of(one.offset);
  } else if constexpr (U == Units::Q6) {
    reinterpret_cast<uint16_t*>(unit + 768)[g * 8 + second * 4 + slice] = bits_of(one.scale);
  } else {
    auto* to = reinterpret_cast<uint16_t*>(unit + (U == Units::Q8 ? 1024 : 512));
    to[g * 4 + second * 2 + slice / 2] = bits_of(one.scale);
  }
}

// grid: (warps over the units of a row of them, rows of units folded); `out` is zero.
template <DType Type>
__global__ void __launch_bounds__(kThreads) pack_kernel(const PackUnitsParams p) {
  constexpr Units U = units_of(Type);
  allow_dependents();
  wait_for_producer();
  const int lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3;
  const int64_t units = p.cols / kUnitCols, column = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  if (column >= units) return;
  for (int64_t tile = p.first_row / kUnitRows + blockIdx.y; tile * kUnitRows < p.first_row + p.rows;
       tile += gridDim.y) {
    uint8_t* unit = static_cast<uint8_t*>(p.out) + (tile * units + column) * unit_bytes(U);
    for (int pair = 0; pair < 16; ++pair) {
      const int64_t row = tile * kUnitRows + g + (pair & 1) * 8 - p.first_row;
      const int64_t k = column * kUnitCols + pair / 4 * 16 + (pair & 2) * 4 + 2 * t;
      if (row < 0 || row >= p.rows) continue;
      const uint8_t* source = static_cast<const uint8_t*>(p.source) + row * p.source_row_bytes;
      const Quantum first = quantum<Type>(source, k), second = quantum<Type>(source, k + 1);
      store_pair<U>(unit, lane, pair, first.q, second.q);
      if (t == 0) store_scale<U>(unit, g, pair, first);
    }
  }
}

// A warp a unit.
__global__ void __launch_bounds__(kThreads) group_kernel(const GroupUnitsParams p) {
  allow_dependents();
  wait_for_producer();
  const int lane = threadIdx.x % 32;
  const int64_t unit = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  if (unit >= p.units) return;
  const uint8_t* from = static_cast<const uint8_t*>(p.source) + unit * unit_bytes(Units::Q4Offset);
  uint8_t* to = static_cast<uint8_t*>(p.out) + unit * unit_bytes(Units::Q4Group);
  reinterpret_cast<uint4*>(to)[lane] = reinterpret_cast<const uint4*>(from)[lane];
  if (lane >= 8) return;
  const uint4 scales = reinterpret_cast<const uint4*>(from + 512)[lane];
  if (scales.x != scales.y || scales.z != scales.w) *p.differ = 1;
  reinterpret_cast<uint2*>(to + 512)[lane] = make_uint2(scales.x, scales.z);
}

// grid: (warps over the units of a row of them, rows of units folded)
template <Units U>
__global__ void __launch_bounds__(kThreads) unpack_kernel(const UnpackUnitsParams p) {
  require_hopper();
  allow_dependents();
  wait_for_producer();
  const int lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3;
  const int64_t units = p.source.cols / kUnitCols,
                column = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  if (column >= units) return;
  const auto* source = static_cast<const uint8_t*>(p.source.data);
  for (int64_t tile = blockIdx.y; tile * kUnitRows < p.source.rows; tile += gridDim.y) {
    Unit<U> held;
    held.load(source + (tile * units + column) * unit_bytes(U), lane);
    uint32_t a[16];
    fragments(held, p.table, a);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int half = i / 2, second = i % 2;  // 32 columns of a row
      uint32_t v[4] = {a[half * 8 + second], a[half * 8 + 2 + second], a[half * 8 + 4 + second],
                       a[half * 8 + 6 + second]};
      transpose_four(v, t);
      const int64_t row = tile * kUnitRows + g + second * 8, k = column * kUnitCols + half * 32 + t * 8;
      if (row < p.source.rows)
        *reinterpret_cast<uint4*>(static_cast<bf16*>(p.out) + row * p.source.cols + k) =
            make_uint4(v[0], v[1], v[2], v[3]);
    }
  }
}

dim3 blocks_of(int64_t rows, int64_t cols) {
  const int64_t tiles = ceil_div(rows, kUnitRows);
  return dim3(static_cast<unsigned>(ceil_div(cols / kUnitCols, kThreads / 32)),
              static_cast<unsigned>(tiles < 32768 ? tiles : 32768));
}

template <DType Type>
void pack(const PackUnitsParams& p, Stream stream) {
  launch("pack", pack_kernel<Type>, Grid{blocks_of(p.rows + kUnitRows, p.cols), dim3(kThreads)}, stream, p);
}

}  // namespace

UnitTable unit_table(DType type) {
  UnitTable table{};
  for (int i = 0; i < 16; ++i) {
    const int fp4 = i % 8 < 5 ? i % 8 : i % 8 == 5 ? 6 : i % 8 == 6 ? 8 : 12;
    constexpr int8_t kNonlinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};
    const int value = type == DType::MXFP4    ? (i < 8 ? fp4 : -fp4)
                      : type == DType::IQ4_NL ? kNonlinear[i]
                                              : i - 8;
    const uint16_t bits = f32_to_bf16(has_float_table(type) ? float_table(type)[static_cast<size_t>(i)]
                                                            : static_cast<float>(value));
    table.low[i / 4] |= uint32_t{bits & 0xffu} << (8 * (i % 4));
    table.high[i / 4] |= static_cast<uint32_t>(bits >> 8) << (8 * (i % 4));
  }
  return table;
}

void launch_pack_units(const PackUnitsParams& p, Stream stream) {
  switch (p.type) {
    case DType::Q4_0:
      return pack<DType::Q4_0>(p, stream);
    case DType::Q4_1:
      return pack<DType::Q4_1>(p, stream);
    case DType::Q4_Z:
      return pack<DType::Q4_Z>(p, stream);
    case DType::Q5_0:
      return pack<DType::Q5_0>(p, stream);
    case DType::Q5_1:
      return pack<DType::Q5_1>(p, stream);
    case DType::Q8_0:
      return pack<DType::Q8_0>(p, stream);
    case DType::Q4_K:
      return pack<DType::Q4_K>(p, stream);
    case DType::Q5_K:
      return pack<DType::Q5_K>(p, stream);
    case DType::Q6_K:
      return pack<DType::Q6_K>(p, stream);
    case DType::IQ4_NL:
      return pack<DType::IQ4_NL>(p, stream);
    case DType::MXFP4:
      return pack<DType::MXFP4>(p, stream);
    case DType::NF4:
      return pack<DType::NF4>(p, stream);
    case DType::FP4:
      return pack<DType::FP4>(p, stream);
    default:
      check_launch(cudaErrorInvalidValue, "units of this type");
  }
}

void launch_group_units(const GroupUnitsParams& p, Stream stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(p.units, kThreads / 32));
  launch("units of one scale", group_kernel, Grid{dim3(blocks), dim3(kThreads)}, stream, p);
}

void launch_unpack_units(const UnpackUnitsParams& p, Stream stream) {
  const Grid grid{blocks_of(p.source.rows, p.source.cols), dim3(kThreads)};
  visit_units(p.source.units,
              [&](auto units) { launch("unpack", unpack_kernel<decltype(units)::value>, grid, stream, p); });
  launch_settle(stream);
}

}  // namespace sluice::kernels::cuda

// The layout of quantized matrices on the device: units of 16 rows x 64 columns, each in the order of the fragments that
// mma m16n8k16 and wgmma take as their 16- or 64-row operand, so that a lane reads what it multiplies in pieces of 16
// bytes, whichever file format the weights came in. A matrix is [rows / 16 rounded up, cols / 64, unit]; rows beyond the
// last are zero.
//
// A unit has four slices of 16 columns. Lane 4g + t holds of each slice the pairs (row g, columns 2t and 2t + 1), (row g +
// 8, the same), (row g, columns 2t + 8 and 2t + 9), (row g + 8, the same). A value is scale * (q - centre) + offset with
// bf16 scales and offsets of groups of 32 columns (16 in Q6, 64 in Q4Group), rounded once from the block's own.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace sluice::kernels::cuda {

// By bytes of a unit, in this order:
// Q4Offset: 512 of nibbles, 128 of scales and offsets. Q4Table: 512 of nibbles, which index a table of 16 numbers, 64 of
// scales. Q5Offset: 512 of nibbles, 128 of fifth bits, 128 of scales and offsets. Q6: 768 of integers, 128 of scales. Q8: 1024 of signed bytes, 64 of scales.
// Q4Group: 512 of nibbles, 64 of scales and offsets; what Q4Offset becomes where both groups have the same.
enum class Units : int32_t { None, Q4Offset, Q4Table, Q5Offset, Q6, Q8, Q4Group };

inline constexpr int kUnitRows = 16, kUnitCols = 64;

constexpr int unit_bytes(Units units) {
  switch (units) {
    case Units::None:
      return 0;
    case Units::Q4Offset:
      return 640;
    case Units::Q4Table:
      return 576;
    case Units::Q5Offset:
      return 768;
    case Units::Q6:
      return 896;
    case Units::Q8:
      return 1088;
    case Units::Q4Group:
      return 576;
  }
  return 0;
}

// None for types that stay as they are stored.
constexpr Units units_of(DType type) {
  switch (type) {
    case DType::Q4_1:
    case DType::Q4_K:
    case DType::Q4_Z:
      return Units::Q4Offset;
    case DType::Q4_0:
    case DType::IQ4_NL:
    case DType::MXFP4:
    case DType::NF4:
    case DType::FP4:
      return Units::Q4Table;
    case DType::Q5_0:
    case DType::Q5_1:
    case DType::Q5_K:
      return Units::Q5Offset;
    case DType::Q6_K:
      return Units::Q6;
    case DType::Q8_0:
      return Units::Q8;
    default:
      return Units::None;
  }
}

// The 16 numbers that nibbles of a type stand for, as bf16.
struct UnitTable {
  uint32_t low[4], high[4];  // their low and their high bytes
};

}  // namespace sluice::kernels::cuda

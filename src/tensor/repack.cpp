#include "tensor/repack.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tensor/grids.h"
#include "tensor/half.h"

namespace sluice {

namespace {

// 64 elements to two blocks of 32.
void repack_nvfp4(uint8_t* to, const uint8_t* block, float factor) {
  for (int half = 0; half < 2; ++half, to += 20) {
    for (int k = 0; k < 2; ++k) {
      const uint16_t d = f32_to_f16(factor * half_ue4m3(block[2 * half + k]));
      std::memcpy(to + 2 * k, &d, 2);
    }
    // Elements 0 to 15 of the block of 32 lie in two rows of eight bytes' low and high halves, 16 to 31 likewise.
    const uint8_t* from = block + 4 + 16 * half;
    for (int i = 0; i < 8; ++i) {
      to[4 + i] = static_cast<uint8_t>((from[i] & 0xf) | (from[8 + i] & 0xf) << 4);
      to[12 + i] = static_cast<uint8_t>(from[i] >> 4 | (from[8 + i] >> 4) << 4);
    }
  }
}

// The nibble of each value, by value + 128.
std::array<uint8_t, 256> codes_of(DType type) {
  std::array<uint8_t, 256> codes{};
  const std::array<int8_t, 16> table = grid_table(type);
  for (int i = 15; i >= 0; --i)
    codes[static_cast<size_t>(table[static_cast<size_t>(i)] + 128)] = static_cast<uint8_t>(i);
  return codes;
}

void repack_grid(uint8_t* to, const GridBlock& grid, const std::array<uint8_t, 256>& codes) {
  std::memcpy(to, &grid.d, 2);
  std::memcpy(to + 2, grid.scales, 16);
  const auto code = [&](int i) { return codes[static_cast<size_t>(grid.values[i] + 128)]; };
  for (int i = 0; i < 128; ++i) {
    const int first = i / 32 * 64 + i % 32;
    to[18 + i] = static_cast<uint8_t>(code(first) | code(first + 32) << 4);
  }
}

}  // namespace

HostTensor repack_for_kernels(TensorView matrix, float factor) {
  const DType type = matrix.dtype, made = kernel_type(type);
  const int64_t blocks = matrix.elements() / info(type).block_elements;
  const int64_t made_bytes = row_bytes(made, info(type).block_elements);
  HostTensor out = HostTensor::make(made, {matrix.dim(0), matrix.dim(1)});
  const auto* from = static_cast<const uint8_t*>(matrix.data);
  auto* to = reinterpret_cast<uint8_t*>(out.buffer.data());
  const std::array<uint8_t, 256> codes = codes_of(made);
  GridBlock grid;
  for (int64_t i = 0; i < blocks; ++i, from += info(type).block_bytes, to += made_bytes) {
    if (type == DType::NVFP4) {
      repack_nvfp4(to, from, factor);
    } else {
      expand_grid(type, from, grid);
      repack_grid(to, grid, codes);
    }
  }
  return out;
}

}  // namespace sluice

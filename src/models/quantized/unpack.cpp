#include "models/quantized/unpack.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "models/quantized/grouped.h"
#include "tensor/blocks.h"

namespace sluice::models {

namespace {

constexpr int64_t kGroup = 32;               // elements of an MXFP4 block
constexpr int64_t kGroupBytes = kGroup / 2;  // without the scale
constexpr uint8_t kNoExponent = 0xff;        // of e8m0
constexpr int64_t kTile = 128;               // the usual side of a tile with one scale

uint8_t element(const uint8_t* group, int64_t i) {
  return i % 2 == 0 ? group[i / 2] & 15 : group[i / 2] >> 4;
}

// Elements 0 to 15 go to the low halves of the bytes, 16 to 31 to the high ones.
void pack_group(uint8_t* out, const uint8_t* group, uint8_t scale) {
  out[0] = scale;
  for (int64_t i = 0; i < kGroupBytes; ++i)
    out[1 + i] = static_cast<uint8_t>(element(group, i) | element(group, i + kGroupBytes) << 4);
}

// The side of the tiles that cover `size` elements with `count` scales; 0 where there is none.
int64_t tile_side(int64_t size, int64_t count) {
  if (count == 1) return size;
  if ((size + kTile - 1) / kTile == count) return kTile;
  return count > 0 && size % count == 0 ? size / count : 0;
}

}  // namespace

Result<HostTensor> pack_mxfp4(TensorView blocks, TensorView scales, bool split_pairs) {
  if (blocks.dtype != DType::U8 || scales.dtype != DType::U8 || blocks.rank != 3 || scales.rank != 2 ||
      blocks.dim(2) != kGroupBytes || blocks.dim(0) != scales.dim(0) || blocks.dim(1) != scales.dim(1))
    return Error{ErrorCode::Corrupt,
                 fmt::format("MXFP4 blocks are {} with scales {}, must be U8[rows, groups, {}] "
                             "with U8[rows, groups]",
                             blocks.describe(), scales.describe(), kGroupBytes)};
  const int64_t rows = blocks.dim(0), groups = blocks.dim(1);
  HostTensor out = HostTensor::make(DType::MXFP4, {rows, groups * kGroup});
  const int64_t bytes = row_bytes(DType::MXFP4, kGroup);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t half = (rows + 1) / 2;
    const int64_t source = !split_pairs ? row : row < half ? 2 * row : 2 * (row - half) + 1;
    for (int64_t group = 0; group < groups; ++group)
      pack_group(reinterpret_cast<uint8_t*>(out.buffer.data()) + (row * groups + group) * bytes,
                 blocks.at<uint8_t>(source, group), *scales.at<uint8_t>(source, group));
  }
  return out;
}

Result<HostTensor> unpack_f8(TensorView values, TensorView scales, int group) {
  const int64_t rows = values.dim(0), cols = values.dim(1);
  const int64_t down = scales.rank >= 1 ? scales.dim(0) : 1, across = scales.rank >= 2 ? scales.dim(1) : 1;
  const int64_t height = tile_side(rows, down), width = tile_side(cols, across);
  const bool exponents = scales.dtype == DType::U8;
  if ((scales.dtype != DType::F32 && scales.dtype != DType::BF16 && !exponents) || scales.rank > 2 ||
      height == 0 || width == 0)
    return Error{ErrorCode::Unsupported,
                 fmt::format("scales {} do not tile values {}", scales.describe(), values.describe())};
  if (group > 0 && (down != rows || across * group != cols))
    return Error{ErrorCode::Corrupt, fmt::format("scales are {}, values {}: group_size is {}",
                                                 scales.describe(), values.describe(), group)};
  std::vector<float> factors(static_cast<size_t>(down * across));
  if (exponents) {
    const auto* from = static_cast<const uint8_t*>(scales.data);
    for (size_t i = 0; i < factors.size(); ++i) {
      if (from[i] == kNoExponent)
        return Error{ErrorCode::Corrupt, fmt::format("scale {} is 255, which is no power of two", i)};
      factors[i] = std::ldexp(1.0f, from[i] - 127);
    }
  } else {
    dequantize_row(scales.dtype, scales.data, factors.data(), down * across);
  }
  return make_plain(rows, cols, [&](int64_t r, float* out) {
    dequantize_row(values.dtype, values.rows(r, r + 1).data, out, cols);
    const float* factor = factors.data() + r / height * across;
    for (int64_t c = 0; c < cols; ++c) out[c] *= factor[c / width];
  });
}

}  // namespace sluice::models

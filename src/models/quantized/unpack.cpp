#include "models/quantized/unpack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
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

// The side of tiles of which `count` cover `size` elements; `said`: what it has to be, 0: not said. 0 where there is none.
int64_t tile_side(int64_t size, int64_t count, int64_t said) {
  if (said > 0) {
    const int64_t side = std::min(said, size);
    return side > 0 && (size + side - 1) / side == count ? side : 0;
  }
  if (count == 1) return size;
  if ((size + kTile - 1) / kTile == count) return kTile;
  return count > 0 && size % count == 0 ? size / count : 0;
}

// Scales as tiles down and across: dimensions of 1 beyond the first two are left out.
std::pair<int64_t, int64_t> tiles_of(const TensorView& scales) {
  if (scales.rank == 4 && scales.dim(1) == 1 && scales.dim(3) == 1) return {scales.dim(0), scales.dim(2)};
  if (scales.rank > 2) return {0, 0};
  return {scales.rank >= 1 ? scales.dim(0) : 1, scales.rank == 2 ? scales.dim(1) : 1};
}

// What the scales multiply with.
Result<std::vector<float>> factors_of(const TensorView& scales) {
  std::vector<float> factors(static_cast<size_t>(scales.elements()));
  if (scales.dtype == DType::U8) {
    if (Status status = check_exponents(scales); !status) return status.error();
    const auto* from = static_cast<const uint8_t*>(scales.data);
    for (size_t i = 0; i < factors.size(); ++i) factors[i] = std::ldexp(1.0f, from[i] - 127);
    return factors;
  }
  dequantize_row(scales.dtype, scales.data, factors.data(), scales.elements());
  for (size_t i = 0; i < factors.size(); ++i)
    if (!std::isfinite(factors[i]))
      return Error{ErrorCode::Corrupt, fmt::format("scale {} is {}", i, factors[i])};
  return factors;
}

bool holds_nan(const TensorView& values) {
  const auto* from = static_cast<const uint8_t*>(values.data);
  return std::any_of(from, from + values.elements(), [](uint8_t code) { return (code & 0x7f) == 0x7f; });
}

}  // namespace

Result<HostTensor> pack_mxfp4(TensorView blocks, TensorView scales, bool split_pairs) {
  if (blocks.dtype != DType::U8 || scales.dtype != DType::U8 || blocks.rank != 3 || scales.rank != 2 ||
      blocks.dim(2) != kGroupBytes || blocks.dim(0) != scales.dim(0) || blocks.dim(1) != scales.dim(1))
    return Error{ErrorCode::Corrupt,
                 fmt::format("MXFP4 blocks are {} with scales {}, must be U8[rows, groups, {}] "
                             "with U8[rows, groups]",
                             blocks.describe(), scales.describe(), kGroupBytes)};
  if (Status status = check_exponents(scales); !status) return status.error();
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

Status check_exponents(TensorView exponents) {
  const auto* from = static_cast<const uint8_t*>(exponents.data);
  const auto* end = from + exponents.elements();
  const auto* found = std::find(from, end, kNoExponent);
  if (found == end) return {};
  return Error{ErrorCode::Corrupt, fmt::format("scale {} is 255, which is no power of two", found - from)};
}

Result<HostTensor> unpack_f8(TensorView values, TensorView scales, const ScaleTile& tile) {
  const int64_t rows = values.dim(0), cols = values.dim(1);
  const auto [down, across] = tiles_of(scales);
  const int64_t height = tile_side(rows, down, tile.rows), width = tile_side(cols, across, tile.cols);
  const DType type = scales.dtype;
  if (type != DType::F32 && type != DType::BF16 && type != DType::F16 && type != DType::U8)
    return Error{ErrorCode::Corrupt,
                 fmt::format("scales are {}, must hold floats or exponents", scales.describe())};
  if (height == 0 || width == 0)
    return Error{ErrorCode::Corrupt,
                 fmt::format("scales are {}, values {}: {}", scales.describe(), values.describe(),
                             tile.said.empty() ? "they do not tile them" : tile.said)};
  const Result<std::vector<float>> factors = factors_of(scales);
  if (!factors) return factors.error();
  if (holds_nan(values))
    return Error{ErrorCode::Corrupt, fmt::format("values {} hold one that is no number", values.describe())};
  return make_plain(rows, cols, [&, across = across](int64_t r, float* out) {
    dequantize_row(values.dtype, values.rows(r, r + 1).data, out, cols);
    const float* factor = factors->data() + r / height * across;
    for (int64_t c = 0; c < cols; ++c) out[c] *= factor[c / width];
  });
}

}  // namespace sluice::models

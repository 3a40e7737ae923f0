// Pictures as processors of vision models read them: decoded to 8-bit RGB under limits, turned upright, cut and resized.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::image {

struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]

  const uint8_t* row(int y) const {
    return rgb.data() + static_cast<size_t>(y) * static_cast<size_t>(width) * 3;
  }
  uint8_t* row(int y) { return rgb.data() + static_cast<size_t>(y) * static_cast<size_t>(width) * 3; }
};

// What one picture may cost. Sizes are read from the headers and held to these before anything is allocated for them.
struct DecodeLimits {
  size_t bytes = size_t{32} << 20;  // of the file
  int64_t pixels = int64_t{50} << 20;
  int64_t memory = int64_t{768} << 20;  // bytes that decoding may hold at once
  std::chrono::milliseconds time{10000};
};

// JPEG, PNG, WebP, or the first frame of a GIF, told apart by their first bytes. As Pillow's convert("RGB") has it: grey
// becomes three equal channels, the upper byte of 16 bits counts, alpha is dropped. Turned as EXIF says.
Result<Image> decode_image(std::string_view bytes, const DecodeLimits& limits = {});

enum class Filter : uint8_t { Bilinear, Bicubic, Lanczos };

// Separable, antialiased where it shrinks, in Pillow 13's fixed-point arithmetic: first along rows, then along columns (the
// other way round where the height loses more than twice as many pixels as the width), each rounded to 8 bits.
// REQUIRES: sizes above 0.
Image resize(const Image& image, int width, int height, Filter filter);

// The part with its upper left corner at (x, y). REQUIRES: it lies inside.
Image crop(const Image& image, int x, int y, int width, int height);

}  // namespace sluice::image

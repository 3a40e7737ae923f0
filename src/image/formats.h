// The decoders of single formats. Each checks the header's size by `check_size` before it allocates.
#pragma once

#include <string_view>

#include "base/clock.h"
#include "image/image.h"

namespace sluice::image {

// A picture as its file has it, not yet turned.
struct Decoded {
  Image image;
  int orientation = 1;  // EXIF's, 1 to 8
};

struct DecodeBudget {
  DecodeLimits limits;
  TimePoint deadline;

  bool late() const { return Clock::now() > deadline; }
};

// The picture of this size would stay within the limits, where each pixel takes `bytes_per_pixel` while it is decoded.
Status check_size(std::string_view format, int64_t width, int64_t height, int64_t bytes_per_pixel,
                  const DecodeLimits& limits);
Error damaged(std::string_view format, std::string_view reason);
Error too_slow(std::string_view format, const DecodeLimits& limits);

Result<Decoded> decode_jpeg(std::string_view bytes, const DecodeBudget& budget);
Result<Decoded> decode_png(std::string_view bytes, const DecodeBudget& budget);
Result<Decoded> decode_webp(std::string_view bytes, const DecodeBudget& budget);
Result<Decoded> decode_gif(std::string_view bytes, const DecodeBudget& budget);

// The orientation that an EXIF block (from its "II" or "MM" on) gives; 1 where it gives none or is damaged.
int exif_orientation(std::string_view block);

}  // namespace sluice::image

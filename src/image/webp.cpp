// WebP by libwebp: still pictures.
#include <webp/decode.h>

#include "image/formats.h"

namespace sluice::image {

namespace {

constexpr int64_t kWebpBytesPerPixel = 8;  // RGB, and YUV or ARGB and alpha inside of the library

size_t little_endian(std::string_view bytes, size_t at) {
  size_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

// Chunks of a RIFF file: name, size, content, padded to even sizes.
int webp_orientation(std::string_view bytes) {
  for (size_t at = 12; at + 8 <= bytes.size();) {
    const size_t size = little_endian(bytes, at + 4);
    if (size > bytes.size() - at - 8) return 1;
    if (bytes.substr(at, 4) == "EXIF") return exif_orientation(bytes.substr(at + 8, size));
    at += 8 + size + (size & 1);
  }
  return 1;
}

}  // namespace

Result<Decoded> decode_webp(std::string_view bytes, const DecodeBudget& budget) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data, bytes.size(), &features) != VP8_STATUS_OK)
    return damaged("WebP", "its header cannot be read");
  if (Status size = check_size("WebP", features.width, features.height, kWebpBytesPerPixel, budget.limits);
      !size)
    return size.error();
  if (features.has_animation != 0)
    return Error{ErrorCode::Unsupported, "the WebP image is an animation; only still ones are read"};
  Decoded out;
  out.orientation = webp_orientation(bytes);
  out.image.width = features.width;
  out.image.height = features.height;
  out.image.rgb.resize(size_t{3} * static_cast<size_t>(features.width) *
                       static_cast<size_t>(features.height));
  if (WebPDecodeRGBInto(data, bytes.size(), out.image.rgb.data(), out.image.rgb.size(), 3 * features.width) ==
      nullptr)
    return damaged("WebP", "its pixels cannot be read");
  return out;
}

}  // namespace sluice::image

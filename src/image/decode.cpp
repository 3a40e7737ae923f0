#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "base/system/thread_turn.h"
#include "image/formats.h"

namespace sluice::image {

namespace {

constexpr int kLargestSide = 1 << 16;

uint32_t read_number(std::string_view block, size_t at, size_t size, bool little) {
  uint32_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    const size_t place = little ? at + size - 1 - i : at + i;
    value = value << 8 | static_cast<uint8_t>(block[place]);
  }
  return value;
}

// Where the pixel at (x, y) of the upright picture lies in the stored one.
struct Source {
  int x, y;
};
Source stored_place(int orientation, int x, int y, const Image& image) {
  const int right = image.width - 1, bottom = image.height - 1;
  switch (orientation) {
    case 2:
      return {right - x, y};
    case 3:
      return {right - x, bottom - y};
    case 4:
      return {x, bottom - y};
    case 5:
      return {y, x};
    case 6:
      return {y, bottom - x};
    case 7:
      return {right - y, bottom - x};
    case 8:
      return {right - y, x};
    default:
      return {x, y};
  }
}

Image upright(Decoded decoded) {
  if (decoded.orientation <= 1) return std::move(decoded.image);
  const Image& from = decoded.image;
  const bool turned = decoded.orientation >= 5;
  Image out{
      .width = turned ? from.height : from.width, .height = turned ? from.width : from.height, .rgb = {}};
  out.rgb.resize(from.rgb.size());
  for (int y = 0; y < out.height; ++y) {
    (void)end_long_turn();
    uint8_t* row = out.row(y);
    for (int x = 0; x < out.width; ++x) {
      const Source place = stored_place(decoded.orientation, x, y, from);
      std::copy_n(from.row(place.y) + 3 * static_cast<size_t>(place.x), 3, row + 3 * static_cast<size_t>(x));
    }
  }
  return out;
}

struct FormatRow {
  std::string_view mark;
  size_t at;  // of the mark
  Result<Decoded> (*decode)(std::string_view, const DecodeBudget&);
};
constexpr FormatRow kFormats[] = {{"\xff\xd8\xff", 0, decode_jpeg},
                                  {"\x89PNG\r\n\x1a\n", 0, decode_png},
                                  {"WEBP", 8, decode_webp},
                                  {"GIF8", 0, decode_gif}};

}  // namespace

Error damaged(std::string_view format, std::string_view reason) {
  return {ErrorCode::InvalidArgument, fmt::format("the {} image is damaged: {}", format, reason)};
}

Error too_slow(std::string_view format, const DecodeLimits& limits) {
  return {ErrorCode::LimitExceeded, fmt::format("the {} image takes longer to decode than the limit of {} ms",
                                                format, limits.time.count())};
}

Status check_size(std::string_view format, int64_t width, int64_t height, int64_t bytes_per_pixel,
                  const DecodeLimits& limits) {
  if (width < 1 || height < 1 || width > kLargestSide || height > kLargestSide)
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("the {} image is {} x {} pixels; each side must be 1 to {}", format, width,
                             height, kLargestSide)};
  if (width * height > limits.pixels)
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("the {} image has {} x {} pixels; the limit is {} in all", format, width, height,
                             limits.pixels)};
  if (width * height * bytes_per_pixel > limits.memory)
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("the {} image of {} x {} pixels needs {} bytes to decode; the limit is {}",
                             format, width, height, width * height * bytes_per_pixel, limits.memory)};
  return {};
}

int exif_orientation(std::string_view block) {
  if (block.starts_with(std::string_view("Exif\0\0", 6))) block.remove_prefix(6);
  if (block.size() < 8 || (!block.starts_with("II") && !block.starts_with("MM"))) return 1;
  const bool little = block[0] == 'I';
  const size_t table = read_number(block, 4, 4, little);
  if (table > block.size() || block.size() - table < 2) return 1;
  const size_t entries = read_number(block, table, 2, little);
  for (size_t i = 0; i < entries; ++i) {
    const size_t at = table + 2 + 12 * i;
    if (at + 12 > block.size()) return 1;
    if (read_number(block, at, 2, little) != 0x0112) continue;
    const uint32_t value = read_number(block, at + 8, 2, little);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Result<Image> decode_image(std::string_view bytes, const DecodeLimits& limits) {
  if (bytes.size() > limits.bytes)
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("the image has {} bytes; the limit is {}", bytes.size(), limits.bytes)};
  const DecodeBudget budget{limits, Clock::now() + limits.time};
  for (const FormatRow& format : kFormats) {
    if (bytes.size() < format.at || !bytes.substr(format.at).starts_with(format.mark)) continue;
    try {
      Result<Decoded> decoded = format.decode(bytes, budget);
      if (!decoded) return decoded.error();
      return upright(std::move(*decoded));
    } catch (const std::bad_alloc&) {
      return Error{ErrorCode::Unavailable, "there is no memory to decode the image"};
    }
  }
  return Error{ErrorCode::Unsupported, "the image is neither JPEG, PNG, WebP nor GIF"};
}

}  // namespace sluice::image

// Pictures of all formats: any bytes decode or give an error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "image/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::image;
  const auto image =
      decode_image({reinterpret_cast<const char*>(data), size}, {.pixels = 1 << 16, .memory = 1 << 20});
  if (!image) return 0;
  if (image->rgb.size() != size_t{3} * static_cast<size_t>(image->width) * static_cast<size_t>(image->height))
    std::abort();
  const Image small = resize(*image, 7, 5, static_cast<Filter>(size % 3));
  if (small.rgb.size() != size_t{3} * 7 * 5) std::abort();
  return 0;
}

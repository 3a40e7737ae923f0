// PNG by libpng, which reports errors by a jump: what must be destroyed lives outside of the function that jumps.
#include <csetjmp>
#include <cstring>
#include <string>

#include <png.h>

#include "base/system/thread_turn.h"
#include "image/formats.h"

namespace sluice::image {

namespace {

constexpr png_alloc_size_t kLargestChunk = 8u << 20;

struct PngState {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::jmp_buf jump{};
  std::string_view bytes;
  size_t at = 0;
  const DecodeBudget* budget = nullptr;
  char message[128] = {};
  bool late = false;
  Decoded out;
  std::vector<png_bytep> rows;
  Status size_check;
};

// Frees the library's memory when the pixels find none, too.
struct PngOwner {
  PngState& state;
  ~PngOwner() { png_destroy_read_struct(&state.png, &state.info, nullptr); }
};

void leave_png(png_structp png, png_const_charp message) {
  auto& state = *static_cast<PngState*>(png_get_error_ptr(png));
  std::strncpy(state.message, message, sizeof state.message - 1);
  std::longjmp(state.jump, 1);
}
void ignore_png_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep to, size_t count) {
  auto& state = *static_cast<PngState*>(png_get_io_ptr(png));
  if (count > state.bytes.size() - state.at) png_error(png, "it ends too early");
  std::memcpy(to, state.bytes.data() + state.at, count);
  state.at += count;
}

void watch_rows(png_structp png, png_uint_32, int) {
  auto& state = *static_cast<PngState*>(png_get_error_ptr(png));
  (void)end_long_turn();
  if (!state.budget->late()) return;
  state.late = true;
  std::longjmp(state.jump, 1);
}

void ask_for_rgb(PngState& state) {
  png_set_expand(state.png);
  png_set_strip_16(state.png);
  png_set_strip_alpha(state.png);
  png_set_gray_to_rgb(state.png);
  png_set_interlace_handling(state.png);
  png_read_update_info(state.png, state.info);
}

void read_orientation(PngState& state) {
  png_uint_32 size = 0;
  png_bytep block = nullptr;
  if (png_get_eXIf_1(state.png, state.info, &size, &block) != 0)
    state.out.orientation = exif_orientation({reinterpret_cast<const char*>(block), size});
}

bool run_png(PngState& state) {
  if (setjmp(state.jump) != 0) return false;
  png_set_read_fn(state.png, &state, read_bytes);
  png_set_read_status_fn(state.png, watch_rows);
  png_set_chunk_malloc_max(state.png, kLargestChunk);
  png_set_crc_action(state.png, PNG_CRC_ERROR_QUIT, PNG_CRC_WARN_DISCARD);
  png_read_info(state.png, state.info);
  const int64_t width = png_get_image_width(state.png, state.info),
                height = png_get_image_height(state.png, state.info);
  state.size_check = check_size("PNG", width, height, 3, state.budget->limits);
  if (!state.size_check) return false;
  read_orientation(state);
  ask_for_rgb(state);
  if (png_get_rowbytes(state.png, state.info) != static_cast<size_t>(3 * width))
    png_error(state.png, "its rows have another length");
  Image& image = state.out.image;
  image.width = static_cast<int>(width);
  image.height = static_cast<int>(height);
  image.rgb.resize(static_cast<size_t>(3 * width * height));
  state.rows.resize(static_cast<size_t>(height));
  for (int y = 0; y < image.height; ++y) state.rows[static_cast<size_t>(y)] = image.row(y);
  png_read_image(state.png, state.rows.data());
  return true;
}

}  // namespace

Result<Decoded> decode_png(std::string_view bytes, const DecodeBudget& budget) {
  PngState state;
  state.bytes = bytes;
  state.budget = &budget;
  state.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, leave_png, ignore_png_warning);
  if (state.png == nullptr) return damaged("PNG", "the library cannot start");
  const PngOwner owner{state};
  state.info = png_create_info_struct(state.png);
  const bool done = state.info != nullptr && run_png(state);
  if (done) return std::move(state.out);
  if (!state.size_check) return state.size_check.error();
  if (state.late) return too_slow("PNG", budget.limits);
  return damaged("PNG", state.message);
}

}  // namespace sluice::image

// JPEG by libjpeg-turbo, which reports errors by a jump: what must be destroyed lives outside of the function that jumps.
#include <csetjmp>
#include <cstdio>
#include <string>

#include <jpeglib.h>

#include "base/system/thread_turn.h"
#include "image/formats.h"

namespace sluice::image {

namespace {

constexpr unsigned kExifMarker = JPEG_APP0 + 1;
constexpr int kMostScans = 500;

struct JpegState {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf jump{};
  const DecodeBudget* budget = nullptr;
  char message[JMSG_LENGTH_MAX] = {};
  bool late = false;
  Decoded out;
  std::vector<uint8_t> line;  // one row of CMYK
  Status size_check;
};

// Frees the library's memory when the pixels find none, too.
struct JpegOwner {
  JpegState& state;
  ~JpegOwner() { jpeg_destroy_decompress(&state.info); }
};

void leave_jpeg(j_common_ptr info) {
  auto& state = *static_cast<JpegState*>(info->client_data);
  info->err->format_message(info, state.message);
  std::longjmp(state.jump, 1);
}

void ignore_warning(j_common_ptr, int) {}
void write_nothing(j_common_ptr) {}

void watch_time(j_common_ptr info) {
  auto& state = *static_cast<JpegState*>(info->client_data);
  const bool endless =
      info->is_decompressor != 0 && reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMostScans;
  if (!endless && !state.budget->late()) return;
  state.late = true;
  std::longjmp(state.jump, 1);
}

// As Pillow has it; Adobe stores the inks inverted.
void cmyk_to_rgb(const uint8_t* inks, uint8_t* rgb, int width, bool inverted) {
  for (int x = 0; x < width; ++x, inks += 4, rgb += 3) {
    const int black = inverted ? inks[3] : 255 - inks[3];
    for (int c = 0; c < 3; ++c) {
      const int ink = inverted ? 255 - inks[c] : inks[c];
      const int product = ink * black + 128;
      rgb[c] = static_cast<uint8_t>(black - ((product >> 8) + product) / 256);
    }
  }
}

int orientation_of(const jpeg_decompress_struct& info) {
  for (jpeg_saved_marker_ptr marker = info.marker_list; marker != nullptr; marker = marker->next) {
    const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (marker->marker == kExifMarker && data.starts_with("Exif")) return exif_orientation(data);
  }
  return 1;
}

// False where the size is refused; errors of the library jump.
bool read_head(JpegState& state, std::string_view bytes) {
  jpeg_decompress_struct& info = state.info;
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_save_markers(&info, kExifMarker, 0xFFFF);
  jpeg_read_header(&info, TRUE);
  // Progressive pictures keep two bytes of each coefficient.
  const int64_t per_pixel = 3 + (jpeg_has_multiple_scans(&info) != 0 ? 2 * int64_t{info.num_components} : 0);
  state.size_check = check_size("JPEG", info.image_width, info.image_height, per_pixel, state.budget->limits);
  if (!state.size_check) return false;
  state.out.orientation = orientation_of(info);
  const bool inks = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = inks ? JCS_CMYK : JCS_RGB;
  return true;
}

bool run_jpeg(JpegState& state, std::string_view bytes) {
  if (setjmp(state.jump) != 0) return false;
  jpeg_decompress_struct& info = state.info;
  jpeg_create_decompress(&info);
  info.client_data = &state;
  info.progress = &state.progress;
  info.mem->max_memory_to_use = static_cast<long>(state.budget->limits.memory);
  if (!read_head(state, bytes)) return false;
  jpeg_start_decompress(&info);
  Image& image = state.out.image;
  image.width = static_cast<int>(info.output_width);
  image.height = static_cast<int>(info.output_height);
  image.rgb.resize(size_t{3} * info.output_width * info.output_height);
  const bool inks = info.out_color_space == JCS_CMYK;
  if (inks) state.line.resize(size_t{4} * info.output_width);
  while (info.output_scanline < info.output_height) {
    (void)end_long_turn();
    uint8_t* row = image.row(static_cast<int>(info.output_scanline));
    JSAMPROW target = inks ? state.line.data() : row;
    jpeg_read_scanlines(&info, &target, 1);
    if (inks) cmyk_to_rgb(state.line.data(), row, image.width, info.saw_Adobe_marker != 0);
  }
  jpeg_finish_decompress(&info);
  return true;
}

}  // namespace

Result<Decoded> decode_jpeg(std::string_view bytes, const DecodeBudget& budget) {
  JpegState state;
  state.budget = &budget;
  state.info.err = jpeg_std_error(&state.errors);
  state.info.client_data = &state;
  state.errors.error_exit = leave_jpeg;
  state.errors.emit_message = ignore_warning;
  state.errors.output_message = write_nothing;
  state.progress.progress_monitor = watch_time;
  const JpegOwner owner{state};
  const bool done = run_jpeg(state, bytes);
  if (done) return std::move(state.out);
  if (!state.size_check) return state.size_check.error();
  if (state.late) return too_slow("JPEG", budget.limits);
  return damaged("JPEG", state.message);
}

}  // namespace sluice::image

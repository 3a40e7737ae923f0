// The first frame of a GIF: LZW codes of palette indices.
#include <algorithm>
#include <array>

#include "image/formats.h"

namespace sluice::image {

namespace {

constexpr int kMostCodes = 4096;

// Reads past the end give zeros and are noted.
class GifBytes {
 public:
  explicit GifBytes(std::string_view bytes) : bytes_(bytes) {}
  int next() {
    if (at_ < bytes_.size()) return static_cast<uint8_t>(bytes_[at_++]);
    ended_ = true;
    return 0;
  }
  int next_two() {
    const int low = next();
    return low | next() << 8;
  }
  std::string_view take(size_t count) {
    ended_ |= count > bytes_.size() - at_;
    const std::string_view out = bytes_.substr(at_, count);
    at_ += out.size();
    return out;
  }
  void skip_blocks() {
    while (const int size = next()) take(static_cast<size_t>(size));
  }
  bool ended() const { return ended_; }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
  bool ended_ = false;
};

// The codes of a frame, least significant bits first, from its blocks.
class CodeReader {
 public:
  explicit CodeReader(GifBytes& bytes) : bytes_(bytes) {}
  // -1: no more.
  int next(int width) {
    while (have_ < width) {
      if (left_ == 0 && (left_ = bytes_.next()) == 0) return -1;
      bits_ |= static_cast<uint32_t>(bytes_.next()) << have_;
      have_ += 8;
      --left_;
      if (bytes_.ended()) return -1;
    }
    const auto code = static_cast<int>(bits_ & ((1u << width) - 1));
    bits_ >>= width;
    have_ -= width;
    return code;
  }

 private:
  GifBytes& bytes_;
  uint32_t bits_ = 0;
  int have_ = 0, left_ = 0;
};

// Appends indices to `out` until it has `wanted` or the codes end.
class LzwDecoder {
 public:
  LzwDecoder(CodeReader& codes, int width) : codes_(codes), first_width_(width) { clear(); }

  void decode(std::vector<uint8_t>& out, size_t wanted) {
    const int clear_code = 1 << first_width_, end_code = clear_code + 1;
    int before = -1;
    while (out.size() < wanted) {
      const int code = codes_.next(width_);
      if (code < 0 || code == end_code) return;
      if (code == clear_code) {
        clear();
        before = -1;
        continue;
      }
      if (code > next_ || (before < 0 && code >= clear_code) || (code == next_ && before < 0)) return;
      write(code == next_ ? before : code);
      if (code == next_) text_.insert(text_.begin(), text_.back());
      if (before >= 0) add(before, text_.back());
      for (auto i = text_.rbegin(); i != text_.rend() && out.size() < wanted; ++i) out.push_back(*i);
      before = code;
    }
  }

 private:
  void clear() {
    width_ = first_width_ + 1;
    next_ = (1 << first_width_) + 2;
  }
  // The string of a code, last index first.
  void write(int code) {
    text_.clear();
    while (code >= (1 << first_width_) + 2) {
      text_.push_back(last_[static_cast<size_t>(code)]);
      code = prefix_[static_cast<size_t>(code)];
    }
    text_.push_back(static_cast<uint8_t>(code));
  }
  void add(int prefix, uint8_t last) {
    if (next_ >= kMostCodes) return;
    prefix_[static_cast<size_t>(next_)] = static_cast<uint16_t>(prefix);
    last_[static_cast<size_t>(next_)] = last;
    if (++next_ == 1 << width_ && width_ < 12) ++width_;
  }

  CodeReader& codes_;
  int first_width_, width_ = 0, next_ = 0;
  std::array<uint16_t, kMostCodes> prefix_{};
  std::array<uint8_t, kMostCodes> last_{};
  std::vector<uint8_t> text_;
};

struct Frame {
  int x = 0, y = 0, width = 0, height = 0;
  bool interlaced = false;
};

// Rows of a frame in the order they are stored.
std::vector<int> row_order(const Frame& frame) {
  std::vector<int> rows;
  constexpr int kPasses[4][2] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}};
  if (frame.interlaced) {
    for (const auto& [first, step] : kPasses)
      for (int y = first; y < frame.height; y += step) rows.push_back(y);
  } else {
    for (int y = 0; y < frame.height; ++y) rows.push_back(y);
  }
  return rows;
}

void paint(Image& image, const Frame& frame, const std::vector<uint8_t>& indices, std::string_view palette) {
  const std::vector<int> rows = row_order(frame);
  for (size_t i = 0; i < indices.size(); ++i) {
    const int x = frame.x + static_cast<int>(i % static_cast<size_t>(frame.width));
    const int y = frame.y + rows[i / static_cast<size_t>(frame.width)];
    const size_t color = size_t{3} * indices[i];
    if (x >= image.width || y >= image.height || color + 3 > palette.size()) continue;
    std::copy_n(reinterpret_cast<const uint8_t*>(palette.data()) + color, 3,
                image.row(y) + size_t{3} * static_cast<size_t>(x));
  }
}

}  // namespace

Result<Decoded> decode_gif(std::string_view bytes, const DecodeBudget& budget) {
  GifBytes in(bytes);
  in.take(6);
  Decoded out;
  Image& image = out.image;
  image.width = in.next_two();
  image.height = in.next_two();
  if (Status size = check_size("GIF", image.width, image.height, 5, budget.limits); !size)
    return size.error();
  const int flags = in.next();
  const auto background = static_cast<size_t>(in.next());
  in.next();
  std::string_view palette;
  if ((flags & 0x80) != 0) palette = in.take(size_t{3} << ((flags & 7) + 1));
  int kind = in.next();
  for (; kind == 0x21 && !in.ended(); kind = in.next()) {
    in.next();
    in.skip_blocks();
  }
  if (kind != 0x2C || in.ended()) return damaged("GIF", "it has no frame");
  Frame frame{.x = in.next_two(), .y = in.next_two(), .width = in.next_two(), .height = in.next_two()};
  if (Status size = check_size("GIF", frame.width, frame.height, 5, budget.limits); !size)
    return size.error();
  const int frame_flags = in.next();
  frame.interlaced = (frame_flags & 0x40) != 0;
  if ((frame_flags & 0x80) != 0) palette = in.take(size_t{3} << ((frame_flags & 7) + 1));
  const int width = in.next();
  if (in.ended() || width < 1 || width > 8) return damaged("GIF", "its frame has no codes");
  image.rgb.resize(size_t{3} * static_cast<size_t>(image.width) * static_cast<size_t>(image.height));
  if (3 * background + 3 <= palette.size())
    paint(image, {.width = image.width, .height = image.height},
          std::vector<uint8_t>(image.rgb.size() / 3, static_cast<uint8_t>(background)), palette);
  CodeReader codes(in);
  std::vector<uint8_t> indices;
  const size_t wanted = static_cast<size_t>(frame.width) * static_cast<size_t>(frame.height);
  LzwDecoder(codes, width).decode(indices, wanted);
  if (indices.size() < wanted) return damaged("GIF", "its pixels end too early");
  paint(image, frame, indices, palette);
  return out;
}

}  // namespace sluice::image

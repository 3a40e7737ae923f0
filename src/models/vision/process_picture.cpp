// Pictures as the processors of transformers make them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/vision/vision.h"

namespace sluice::models {

namespace {

constexpr int kLongestEdge = 4096;
constexpr int kLongestStrip = 200;  // times its width

struct Size {
  int width = 0, height = 0;
};

int round_up(int value, int unit) {
  return (value + unit - 1) / unit * unit;
}

// The longer edge becomes `edge`, the shorter one even.
Size with_longest_edge(Size size, int edge) {
  const double ratio = static_cast<double>(size.width) / size.height;
  if (size.width >= size.height) {
    const int height = static_cast<int>(edge / ratio);
    return {edge, std::max(1, height + height % 2)};
  }
  const int width = static_cast<int>(edge * ratio);
  return {std::max(1, width + width % 2), edge};
}

Size no_longer_than(Size size, int edge) {
  const double ratio = static_cast<double>(size.width) / size.height;
  if (size.width >= size.height && size.width > edge)
    return {edge, std::max(1, static_cast<int>(edge / ratio))};
  if (size.height > size.width && size.height > edge)
    return {std::max(1, static_cast<int>(edge * ratio)), edge};
  return size;
}

Size in_whole_tiles(Size size, int tile) {
  const double ratio = static_cast<double>(size.width) / size.height;
  if (size.width >= size.height) {
    const int width = round_up(size.width, tile);
    return {width, round_up(std::max(1, static_cast<int>(width / ratio)), tile)};
  }
  const int height = round_up(size.height, tile);
  return {round_up(std::max(1, static_cast<int>(height * ratio)), tile), height};
}

std::string repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// Adds a tile whose embeddings are one run.
void add_tile(const VisionSpec& spec, image::Image tile, PictureParts& out) {
  const int tokens = tile_tokens(spec, tile.width, tile.height);
  out.text += repeated(spec.image_token, tokens);
  out.runs.push_back({out.tiles.size(), 0, tokens});
  out.tiles.push_back(std::move(tile));
}

PictureParts in_tiles(const VisionSpec& spec, const TiledPicture& how, const image::Image& picture) {
  constexpr std::string_view kFence = "<fake_token_around_image>";
  const Size first =
      no_longer_than(with_longest_edge({picture.width, picture.height}, how.longest_edge), kLongestEdge);
  image::Image resized = image::resize(picture, first.width, first.height, spec.filter);
  PictureParts out;
  if (how.split) {
    const Size whole = in_whole_tiles(first, how.tile);
    resized = image::resize(resized, whole.width, whole.height, spec.filter);
  }
  const int rows = resized.height / how.tile, columns = resized.width / how.tile;
  if (how.split && (rows > 1 || columns > 1)) {
    for (int i = 0; i < rows * columns; ++i) {
      const int row = i / columns, column = i % columns;
      out.text += fmt::format("{}<row_{}_col_{}>", kFence, row + 1, column + 1);
      add_tile(spec, image::crop(resized, column * how.tile, row * how.tile, how.tile, how.tile), out);
      if (column + 1 == columns) out.text += '\n';
    }
    out.text += '\n';
  }
  out.text += fmt::format("{}<global-img>", kFence);
  add_tile(spec, image::resize(resized, how.tile, how.tile, spec.filter), out);
  out.text += kFence;
  return out;
}

image::Image as_square(const VisionSpec& spec, const SquarePicture& how, const image::Image& picture) {
  if (!how.cut) return image::resize(picture, how.side, how.side, spec.filter);
  const int64_t shorter = std::min(picture.width, picture.height);
  const auto scaled = [&](int edge) { return static_cast<int>(int64_t{how.side} * edge / shorter); };
  const image::Image resized =
      image::resize(picture, scaled(picture.width), scaled(picture.height), spec.filter);
  return image::crop(resized, (resized.width - how.side) / 2, (resized.height - how.side) / 2, how.side,
                     how.side);
}

// Python's round: halves go to the even neighbour.
int64_t rounded(double value) {
  return static_cast<int64_t>(std::nearbyint(value));
}

image::Image scaled(const VisionSpec& spec, const ScaledPicture& how, const image::Image& picture) {
  const double unit = spec.unit(), width = picture.width, height = picture.height;
  int64_t down = rounded(height / unit), across = rounded(width / unit);
  const auto pixels = static_cast<double>(down * across) * unit * unit;
  if (pixels > static_cast<double>(how.max_pixels)) {
    const double by = std::sqrt(height * width / static_cast<double>(how.max_pixels));
    down = std::max<int64_t>(1, static_cast<int64_t>(std::floor(height / by / unit)));
    across = std::max<int64_t>(1, static_cast<int64_t>(std::floor(width / by / unit)));
  } else if (pixels < static_cast<double>(how.min_pixels)) {
    const double by = std::sqrt(static_cast<double>(how.min_pixels) / (height * width));
    down = static_cast<int64_t>(std::ceil(height * by / unit));
    across = static_cast<int64_t>(std::ceil(width * by / unit));
  }
  return image::resize(picture, static_cast<int>(std::max<int64_t>(1, across)) * spec.unit(),
                       static_cast<int>(std::max<int64_t>(1, down)) * spec.unit(), spec.filter);
}

PictureParts in_rows(const VisionSpec& spec, const RowPicture& how, const image::Image& picture) {
  double width = picture.width, height = picture.height;
  const double ratio = std::max(width, height) / how.longest_edge;
  if (ratio > 1) {
    width = std::floor(width / ratio);
    height = std::floor(height / ratio);
  }
  const int unit = spec.unit(), across = std::max(1, (static_cast<int>(width) - 1) / unit + 1),
            down = std::max(1, (static_cast<int>(height) - 1) / unit + 1);
  PictureParts out;
  for (int row = 0; row < down; ++row) {
    out.text += repeated(spec.image_token, across) + (row + 1 < down ? how.row_end : how.last_row_end);
    out.runs.push_back({0, row * across, across});
  }
  out.tiles.push_back(image::resize(picture, across * unit, down * unit, spec.filter));
  return out;
}

// Of grids with the same difference of shape, the one of more tiles that are not mostly made up.
Size nearest_grid(const GridPicture& how, const image::Image& picture) {
  const double shape = static_cast<double>(picture.width) / picture.height;
  const double area = static_cast<double>(picture.width) * picture.height;
  Size best{1, 1};
  double least = std::numeric_limits<double>::infinity();
  for (int tiles = std::max(1, how.min_tiles); tiles <= how.max_tiles; ++tiles) {
    for (int width = 1; width <= tiles; ++width) {
      if (tiles % width != 0) continue;
      const int height = tiles / width;
      const double difference = std::abs(shape - static_cast<double>(width) / height);
      if (difference > least) continue;
      if (difference < least || area > 0.5 * how.tile * how.tile * width * height) best = {width, height};
      least = difference;
    }
  }
  return best;
}

PictureParts in_grid(const VisionSpec& spec, const GridPicture& how, const image::Image& picture) {
  const Size grid = nearest_grid(how, picture);
  const image::Image resized =
      image::resize(picture, grid.width * how.tile, grid.height * how.tile, spec.filter);
  PictureParts out;
  for (int i = 0; i < grid.width * grid.height; ++i)
    add_tile(spec,
             image::crop(resized, i % grid.width * how.tile, i / grid.width * how.tile, how.tile, how.tile),
             out);
  if (out.tiles.size() > 1) add_tile(spec, image::resize(picture, how.tile, how.tile, spec.filter), out);
  return out;
}

PictureParts cut_picture(const VisionSpec& spec, const image::Image& picture) {
  PictureParts out;
  if (const auto* tiled = std::get_if<TiledPicture>(&spec.picture)) return in_tiles(spec, *tiled, picture);
  if (const auto* rows = std::get_if<RowPicture>(&spec.picture)) return in_rows(spec, *rows, picture);
  if (const auto* grid = std::get_if<GridPicture>(&spec.picture)) return in_grid(spec, *grid, picture);
  if (const auto* how = std::get_if<ScaledPicture>(&spec.picture)) {
    add_tile(spec, scaled(spec, *how, picture), out);
  } else {
    add_tile(spec, as_square(spec, std::get<SquarePicture>(spec.picture), picture), out);
  }
  return out;
}

}  // namespace

int tile_tokens(const VisionSpec& spec, int width, int height) {
  return width / spec.unit() * (height / spec.unit());
}

Result<PictureParts> process_picture(const VisionSpec& spec, const image::Image& picture) {
  const int longer = std::max(picture.width, picture.height),
            shorter = std::min(picture.width, picture.height);
  if (longer > int64_t{kLongestStrip} * shorter)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("a picture of {} x {} pixels is longer than {} times its width", picture.width,
                             picture.height, kLongestStrip)};
  PictureParts out = cut_picture(spec, picture);
  out.text = spec.before + out.text + spec.after;
  return out;
}

}  // namespace sluice::models

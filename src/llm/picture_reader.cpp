#include "llm/picture_reader.h"

#include <algorithm>
#include <new>

#include "base/sha256.h"
#include "base/system/memory.h"
#include "base/system/thread_turn.h"
#include "image/image.h"

namespace sluice::llm {

namespace {

std::shared_ptr<const request::PromptImage> as_prompt_image(image::Image tile) {
  auto out = std::make_shared<request::PromptImage>();
  const int32_t size[2] = {tile.width, tile.height};
  Sha256 hash;
  hash.update(std::as_bytes(std::span(size)));
  constexpr size_t kBlock = size_t{64} << 10;
  const std::span<const std::byte> pixels = std::as_bytes(std::span(tile.rgb));
  for (size_t at = 0; at < pixels.size(); at += kBlock) {
    hash.update(pixels.subspan(at, std::min(kBlock, pixels.size() - at)));
    (void)end_long_turn();
  }
  out->content = hash.finish();
  out->width = tile.width;
  out->height = tile.height;
  out->rgb = std::move(tile.rgb);
  return out;
}

class TowerPictureReader final : public engine::PictureReader {
 public:
  explicit TowerPictureReader(const models::Model& model)
      : model_(model),
        spec_(*model.files.vision),
        style_{.placeholder = spec_.placeholder,
               .token = spec_.image_token_id,
               .bidirectional = spec_.bidirectional,
               .grid_positions = spec_.grid_positions} {}

  const engine::PictureStyle& style() const override { return style_; }

  Result<engine::Picture> read(std::string_view file) const override {
    if (!model_.vision) return Error{ErrorCode::Unsupported, "pictures cannot be read: " + model_.no_vision};
    try {
      const Result<image::Image> decoded = image::decode_image(file);
      if (!decoded) return decoded.error();
      Result<models::PictureParts> parts = models::process_picture(spec_, *decoded);
      if (!parts) return parts.error();
      std::vector<std::shared_ptr<const request::PromptImage>> tiles;
      for (image::Image& tile : parts->tiles) tiles.push_back(as_prompt_image(std::move(tile)));
      engine::Picture out{.text = std::move(parts->text), .runs = {}};
      for (const models::PictureParts::Run& run : parts->runs) {
        const auto& tile = tiles[run.tile];
        out.runs.push_back({tile, run.first, run.tokens, tile->width / spec_.unit()});
      }
      return out;
    } catch (const std::bad_alloc&) {
      return out_of_memory();
    }
  }

 private:
  const models::Model& model_;
  const models::VisionSpec& spec_;
  engine::PictureStyle style_;
};

}  // namespace

std::unique_ptr<engine::PictureReader> make_picture_reader(const models::Model& model) {
  if (!model.files.vision) return nullptr;
  return std::make_unique<TowerPictureReader>(model);
}

}  // namespace sluice::llm

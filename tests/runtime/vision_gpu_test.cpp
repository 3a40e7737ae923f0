// Vision towers through the operations that all back-ends share: the GPU's embeddings beside the reference's.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/vision/vision.h"
#include "runtime/device.h"

namespace sluice {

namespace {

std::vector<float> tower_embeddings(const std::string& folder, const char* device) {
  auto backend = runtime::make_backend({.device = device});
  auto files = models::open_model(folder);
  if (!backend || !files || !files->vision) return {};
  const auto model = models::load_model(std::move(*files), *backend);
  if (!model || !(*model)->vision) return {};
  const models::VisionSpec& spec = *(*model)->files.vision;
  image::Image picture{.width = 53, .height = 37, .rgb = {}};
  for (int i = 0; i < 53 * 37 * 3; ++i) picture.rgb.push_back(static_cast<uint8_t>(i * 37 % 251));
  const auto parts = models::process_picture(spec, picture);
  if (!parts) return {};
  models::VisionTower tower(spec, *(*model)->vision, **backend);
  std::vector<float> out;
  for (const image::Image& tile : parts->tiles) {
    const kernels::Memory made = tower.encode(tile.rgb.data(), tile.width, tile.height);
    std::vector<float> values(static_cast<size_t>(made.view.elements()));
    (*backend)->download(
        TensorView::contiguous(values.data(), DType::F32, {made.view.dim(0), made.view.dim(1)}), made.view);
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

}  // namespace

TEST(VisionTowerOnGpu, AgreesWithTheReference) {
  if (!runtime::make_backend({.device = "cuda"})) GTEST_SKIP() << "no GPU here";
  const std::string data = std::string(SLUICE_TEST_DATA) + "/../../golden/data/vision/";
  for (const char* family :
       {"gemma3", "idefics3", "internvl", "llava", "mistral3", "pixtral", "qwen2_5_vl", "qwen3_vl"}) {
    SCOPED_TRACE(family);
    const std::vector<float> wanted = tower_embeddings(data + family, "ref"),
                             made = tower_embeddings(data + family, "cuda");
    ASSERT_FALSE(wanted.empty());
    ASSERT_EQ(made.size(), wanted.size());
    double difference = 0, size = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      difference += std::pow(made[i] - wanted[i], 2);
      size += std::pow(wanted[i], 2);
    }
    EXPECT_LE(std::sqrt(difference / size), 3e-2);
  }
}

}  // namespace sluice

// Vision towers in GGUF files, written by llama.cpp's converter, against the same towers in Hugging Face folders.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "formats/safetensors/safetensors.h"
#include "image/image.h"
#include "models/model.h"
#include "models/vision/mmproj.h"
#include "runtime/device.h"

namespace sluice::models {

namespace {

const std::string kVision = std::string(SLUICE_TEST_DATA) + "/vision/";
const std::vector<std::string> kConverted{"gemma3",  "idefics3",   "internvl", "mistral3",
                                          "pixtral", "qwen2_5_vl", "qwen3_vl"};

constexpr int kDim = 32;  // of the miniatures' decoders

image::Image test_picture() {
  std::ifstream file(kVision + "pictures/odd.jpg", std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return *image::decode_image(bytes.str());
}

formats::GgufMetadata vocabulary(std::vector<std::string_view> tokens) {
  formats::GgufMetadata out;
  out.set("tokenizer.ggml.tokens", formats::GgufArray(std::move(tokens)));
  return out;
}

std::vector<float> embeddings(const VisionSpec& spec, const formats::TensorStore& tensors,
                              kernels::Backend& backend, const image::Image& tile) {
  const Result<VisionWeights> weights = bind_vision(spec, tensors, backend);
  EXPECT_TRUE(weights.ok()) << weights.error().message;
  if (!weights) return {};
  const kernels::Memory made =
      VisionTower(spec, *weights, backend).encode(tile.rgb.data(), tile.width, tile.height);
  std::vector<float> out(static_cast<size_t>(made.view.elements()));
  EXPECT_EQ(made.view.dtype, DType::F32);
  std::memcpy(out.data(), made.view.data, out.size() * sizeof(float));
  return out;
}

double distance(const std::vector<float>& ours, const std::vector<float>& reference) {
  if (ours.size() != reference.size() || ours.empty()) return 1;
  double difference = 0, size = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    difference += std::pow(ours[i] - reference[i], 2);
    size += std::pow(reference[i], 2);
  }
  return std::sqrt(difference / size);
}

}  // namespace

TEST(Mmproj, TowersMakeTheEmbeddingsOfTheirFolders) {
  const auto backend = runtime::make_backend({.device = "ref"});
  ASSERT_TRUE(backend.ok());
  for (const std::string& family : kConverted) {
    SCOPED_TRACE(family);
    const auto folder = open_model(kVision + family);
    ASSERT_TRUE(folder.ok() && folder->vision);
    const formats::GgufMetadata words = vocabulary({"<s>", folder->vision->image_token});
    const auto tower =
        open_mmproj(kVision + family + "/mmproj.gguf", {.metadata = words, .layers = 3, .dim = kDim});
    ASSERT_TRUE(tower.ok()) << tower.error().message;
    EXPECT_EQ(tower->spec.image_token_id, 1);
    EXPECT_EQ(tower->spec.unit(), folder->vision->unit());
    const auto parts = process_picture(*folder->vision, test_picture());
    ASSERT_TRUE(parts.ok());
    for (const image::Image& tile : parts->tiles)
      EXPECT_LE(distance(embeddings(tower->spec, tower->tensors, **backend, tile),
                         embeddings(*folder->vision, folder->tensors, **backend, tile)),
                1e-4);
  }
}

// The families whose files say all that their processors do.
TEST(Mmproj, PicturesAreCutAsTheFoldersSay) {
  for (const char* family : {"gemma3", "idefics3", "qwen2_5_vl", "qwen3_vl"}) {
    SCOPED_TRACE(family);
    const auto folder = open_model(kVision + family);
    ASSERT_TRUE(folder.ok() && folder->vision);
    const formats::GgufMetadata words = vocabulary({"<s>", folder->vision->image_token});
    const auto tower = open_mmproj(kVision + family + std::string("/mmproj.gguf"), {words, 3, kDim});
    ASSERT_TRUE(tower.ok()) << tower.error().message;
    const auto wanted = process_picture(*folder->vision, test_picture());
    const auto made = process_picture(tower->spec, test_picture());
    ASSERT_TRUE(wanted.ok() && made.ok());
    EXPECT_EQ(made->text, wanted->text);
    ASSERT_EQ(made->tiles.size(), wanted->tiles.size());
    for (size_t i = 0; i < made->tiles.size(); ++i) EXPECT_EQ(made->tiles[i].rgb, wanted->tiles[i].rgb);
  }
}

TEST(Mmproj, WhatIsNotKnownIsNamed) {
  const auto refusal = [](const formats::Gguf& tower, const formats::GgufMetadata& words) {
    const auto spec = read_mmproj(tower, "tower.gguf", {words, 3, kDim});
    return spec ? std::string("taken") : spec.error().message;
  };
  const auto words = vocabulary({"<s>", "<image_soft_token>"});
  formats::Gguf tower;
  EXPECT_NE(refusal(tower, words).find("projector type"), std::string::npos);
  tower.metadata.set("clip.projector_type", std::string_view("audio"));
  EXPECT_NE(refusal(tower, words).find("'audio'"), std::string::npos);
  const auto file = formats::open_gguf(kVision + "gemma3/mmproj.gguf");
  ASSERT_TRUE(file.ok());
  formats::Gguf changed = *file;
  EXPECT_EQ(refusal(changed, words), "taken");
  changed.metadata.set("clip.vision.projection_dim", int64_t{64});
  EXPECT_NE(refusal(changed, words).find("64 numbers; the decoder takes 32"), std::string::npos);
  changed = *file;
  EXPECT_NE(refusal(changed, vocabulary({"<s>"})).find("<image_soft_token>"), std::string::npos);
  for (const char* key : {"clip.vision.patch_size", "clip.vision.block_count", "clip.vision.embedding_length",
                          "clip.vision.attention.head_count", "clip.vision.projection_dim"}) {
    for (const int64_t value : {int64_t{-1}, int64_t{1} << 40}) {
      changed = *file;
      changed.metadata.set(key, value);
      EXPECT_NE(refusal(changed, words).find(key), std::string::npos)
          << key << " " << refusal(changed, words);
    }
    changed = *file;
    changed.metadata.set(key, int64_t{0});
    EXPECT_NE(refusal(changed, words), "taken") << key;
  }
}

}  // namespace sluice::models

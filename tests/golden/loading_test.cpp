// What is said about a folder whose config and weights do not belong together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/json.h"
#include "kernels/ref/ref.h"
#include "lab/profile.h"
#include "models/model.h"
#include "tests/formats/files.h"

namespace sluice {

namespace {

namespace fs = std::filesystem;

json::object config_of(const fs::path& folder) {
  std::ifstream file(folder / "config.json");
  std::ostringstream text;
  text << file.rdbuf();
  return json::parse(text.str()).as_object();
}

// Loads the weights of a folder under its config with one key changed; the message, or "".
std::string said(const std::string& folder, std::string_view key, json::value value) {
  const formats::TempFolder temporary;
  const fs::path source = fs::path(SLUICE_TEST_DATA) / folder;
  fs::copy_file(source / "model.safetensors", temporary.path() / "model.safetensors");
  json::object config = config_of(source);
  config[json::string_view(key.data(), key.size())] = std::move(value);
  temporary.write("config.json", json::serialize(config));
  auto files = models::open_model(temporary.path().string());
  if (!files) return files.error().message;
  auto model = models::load_model(std::move(*files), kernels::make_ref_backend());
  return model ? "" : model.error().message;
}

}  // namespace

using testing::HasSubstr;

TEST(Loading, AcceptsWhatBelongsTogether) {
  EXPECT_EQ(said("grouped-query", "hidden_size", 32), "");
}

// As transformers reads it: a config that is wrong about what the file holds.
TEST(Loading, UsesAnOutputMatrixThatDiffersFromTheEmbedding) {
  const formats::TempFolder temporary;
  const fs::path source = fs::path(SLUICE_TEST_DATA) / "llama";
  fs::copy_file(source / "model.safetensors", temporary.path() / "model.safetensors");
  json::object config = config_of(source);
  for (const bool tied : {false, true}) {
    config["tie_word_embeddings"] = tied;
    temporary.write("config.json", json::serialize(config));
    const auto files = models::open_model(temporary.path().string());
    ASSERT_TRUE(files.ok()) << files.error().message;
    EXPECT_FALSE(files->spec.tied_output) << tied;
  }
}

TEST(Loading, NamesAMissingTensor) {
  EXPECT_THAT(said("grouped-query", "num_hidden_layers", 3), HasSubstr("of layer 2: the file has nothing"));
}

TEST(Loading, NamesBothShapes) {
  EXPECT_THAT(said("grouped-query", "intermediate_size", 40),
              HasSubstr("gate and up of layer 0: the file has BF16[48, 32] + BF16[48, 32], the architecture "
                        "needs [80, 32]"));
  EXPECT_THAT(said("grouped-query", "vocab_size", 65), HasSubstr("the architecture needs [65, 32]"));
  EXPECT_THAT(said("grouped-query", "num_key_value_heads", 4), HasSubstr("qkv of layer 0"));
}

TEST(Loading, NamesWhatAMixtureLacks) {
  EXPECT_THAT(said("mixture", "num_local_experts", 8), HasSubstr("router of layer 0"));
  EXPECT_THAT(said("mixture", "moe_intermediate_size", 8), HasSubstr("expert gate and up of layer 0"));
}

TEST(Loading, NamesWhatLatentAttentionLacks) {
  EXPECT_THAT(said("latent", "kv_lora_rank", 8), HasSubstr("latent"));
  EXPECT_THAT(said("latent", "v_head_dim", 16), HasSubstr("latent up"));
  EXPECT_THAT(said("deepseek_v32", "index_n_heads", 4), HasSubstr("indexer query of layer 0"));
  EXPECT_THAT(said("deepseek_v32", "index_head_dim", 8), HasSubstr("indexer query of layer 0"));
}

// The profile's back-end does not choose positions: there the model ends where its layers would.
TEST(Loading, LeavesIndexersOutWhereTheDeviceDoesNotChoose) {
  auto files = models::open_model(std::string(SLUICE_TEST_DATA) + "/deepseek_v32");
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_EQ(files->spec.context, 64);
  const auto model = models::load_model(std::move(*files),
                                        std::make_shared<lab::ProfiledBackend>(kernels::make_ref_backend()));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ((*model)->spec().context, 16);
  EXPECT_EQ((*model)->spec().context_limit, 16);
  EXPECT_EQ(models::positions_before_choice((*model)->spec()), 0);
}

}  // namespace sluice

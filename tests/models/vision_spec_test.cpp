// What configs and processors say about a vision tower.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/vision/vision.h"
#include "tests/models/specs.h"

namespace sluice::models {

using testing::HasSubstr;

namespace {

json::object seeing(std::string_view architecture, json::object tower, json::object more = {}) {
  json::object config = small_config(architecture);
  config["image_token_id"] = 7;
  for (const auto& [key, value] : json::object{{"hidden_size", 32},
                                               {"intermediate_size", 48},
                                               {"num_hidden_layers", 3},
                                               {"num_attention_heads", 2},
                                               {"image_size", 28},
                                               {"patch_size", 7}})
    if (!tower.contains(key)) tower[key] = value;
  config["vision_config"] = std::move(tower);
  for (const auto& [key, value] : more) config[key] = value;
  return config;
}

Result<VisionSpec> tower_of(json::object object, json::object processor) {
  Result<Config> config = Config::from_json(std::move(object), "config.json");
  if (!config) return config.error();
  processor["architectures"] = json::array{"ImageProcessor"};
  Result<Config> pictures = Config::from_json(std::move(processor), "preprocessor_config.json");
  if (!pictures) return pictures.error();
  Result<std::optional<VisionSpec>> spec = build_vision(*config, *pictures);
  if (!spec) return spec.error();
  if (!*spec) return Error{ErrorCode::Unsupported, "no tower"};
  return std::move(**spec);
}

std::string said_of_tower(json::object config, json::object processor) {
  const Result<VisionSpec> spec = tower_of(std::move(config), std::move(processor));
  return spec ? "" : spec.error().message;
}

const std::string kLlava = "LlavaForConditionalGeneration";

}  // namespace

// (x * factor - mean) / deviation as (x / 255 - mean') / deviation'.
TEST(VisionSpec, PixelsAreScaledAsTheProcessorSays) {
  const json::object usual{{"image_mean", json::array{0.5, 0.5, 0.5}},
                           {"image_std", json::array{0.25, 0.5, 1}}};
  const Result<VisionSpec> plain = tower_of(seeing(kLlava, {}), usual);
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_FLOAT_EQ(plain->mean[0], 0.5f);
  EXPECT_FLOAT_EQ(plain->deviation[0], 0.25f);
  const Result<VisionSpec> twice = tower_of(seeing(kLlava, {}), with(usual, {{"rescale_factor", 2.0 / 255}}));
  ASSERT_TRUE(twice.ok());
  EXPECT_FLOAT_EQ(twice->mean[0], 0.25f);
  EXPECT_FLOAT_EQ(twice->deviation[1], 0.25f);
  const Result<VisionSpec> bytes =
      tower_of(seeing(kLlava, {}), with(usual, {{"do_rescale", false}, {"do_normalize", false}}));
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(bytes->mean[2], 0.0f);
  EXPECT_FLOAT_EQ(bytes->deviation[2], 1.0f / 255);
}

TEST(VisionSpec, ProjectorsHaveTheActivationTheyName) {
  const Result<VisionSpec> spec =
      tower_of(seeing(kLlava, {}, {{"projector_hidden_act", "silu"}}), json::object{});
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->projector_activation, kernels::Activation::Silu);
}

TEST(VisionSpec, RefusesWhatTowersDoNotCompute) {
  EXPECT_THAT(said_of_tower(seeing(kLlava, {}), {{"resample", 0}}),
              HasSubstr("'resample' is 0, must be 1, 2 or 3"));
  EXPECT_THAT(said_of_tower(seeing(kLlava, {}), {{"rescale_factor", 0.0}}),
              HasSubstr("'rescale_factor' is 0"));
  EXPECT_THAT(said_of_tower(seeing(kLlava, {}, {{"projector_hidden_act", "quick_gelu"}}), {}),
              HasSubstr("'projector_hidden_act' is 'quick_gelu', which is not known"));
  EXPECT_THAT(said_of_tower(seeing(kLlava, {{"model_type", "pixtral"}, {"hidden_act", "quick_gelu"}}), {}),
              HasSubstr("'quick_gelu', which gated feed-forwards do not have"));
}

}  // namespace sluice::models

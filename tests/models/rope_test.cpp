#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/models/specs.h"

namespace sluice::models {

namespace {

constexpr int kDims = 16;

Rope rope_of(json::object keys) {
  auto config =
      Config::from_json(with(small_config(), {{"rope_parameters", std::move(keys)}}), "config.json");
  Rope rope = make_rope(*config, {.dims = kDims});
  EXPECT_TRUE(config->status().ok()) << config->status().error().message;
  return rope;
}

double plain(int pair, double theta = 10000.0) {
  return std::pow(theta, -2.0 * pair / kDims);
}

}  // namespace

TEST(Rope, PlainFrequenciesAreAGeometricRow) {
  const Rope rope = rope_of({{"rope_type", "default"}, {"rope_theta", 500000.0}});
  ASSERT_EQ(rope.inverse_frequency.size(), 8u);
  for (int i = 0; i < 8; ++i)
    EXPECT_FLOAT_EQ(rope.inverse_frequency[static_cast<size_t>(i)], static_cast<float>(plain(i, 500000.0)));
  EXPECT_EQ(rope.magnitude, 1.0f);
}

TEST(Rope, LinearDividesAll) {
  const Rope rope = rope_of({{"rope_type", "linear"}, {"factor", 4.0}});
  for (int i = 0; i < 8; ++i)
    EXPECT_FLOAT_EQ(rope.inverse_frequency[static_cast<size_t>(i)], static_cast<float>(plain(i) / 4.0));
}

TEST(Rope, Llama3KeepsShortWavesAndDividesLongOnes) {
  const Rope rope = rope_of({{"rope_type", "llama3"},
                             {"factor", 8.0},
                             {"low_freq_factor", 1.0},
                             {"high_freq_factor", 4.0},
                             {"original_max_position_embeddings", 64}});
  for (int i = 0; i < 8; ++i) {
    const double frequency = plain(i), wave = 2.0 * std::numbers::pi / frequency;
    double expected = frequency;
    if (wave > 64.0) {
      expected = frequency / 8.0;
    } else if (wave >= 16.0) {
      const double smooth = (64.0 / wave - 1.0) / 3.0;
      expected = (1.0 - smooth) * frequency / 8.0 + smooth * frequency;
    }
    EXPECT_NEAR(rope.inverse_frequency[static_cast<size_t>(i)], expected, 1e-6 * expected) << i;
  }
}

TEST(Rope, YarnBlendsByRotationsAndScalesTheMagnitude) {
  const Rope rope =
      rope_of({{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 512}});
  const auto correction = [](double rotations) {
    return kDims * std::log(512.0 / (rotations * 2.0 * std::numbers::pi)) / (2.0 * std::log(10000.0));
  };
  const double low = std::max(0.0, std::floor(correction(32.0))), high = std::ceil(correction(1.0));
  for (int i = 0; i < 8; ++i) {
    const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
    const double expected = plain(i) / 4.0 * ramp + plain(i) * (1.0 - ramp);
    EXPECT_NEAR(rope.inverse_frequency[static_cast<size_t>(i)], expected, 1e-6 * expected) << i;
  }
  EXPECT_FLOAT_EQ(rope.magnitude, static_cast<float>(0.1 * std::log(4.0) + 1.0));
}

TEST(Rope, AFixedAlphaStretchesTheBase) {
  const Rope rope = rope_of({{"rope_type", "dynamic"}, {"alpha", 1000.0}, {"factor", 1.0}});
  const double theta = 10000.0 * std::pow(1000.0, 16.0 / 14.0);
  for (int i = 0; i < 8; ++i)
    EXPECT_FLOAT_EQ(rope.inverse_frequency[static_cast<size_t>(i)], static_cast<float>(plain(i, theta)));
}

TEST(Rope, LongropeHasOneRowUpToTheOriginalLengthAndOneBeyond) {
  const json::array short_row(8, 1.0), long_row(8, 2.0);
  auto config = Config::from_json(
      with(small_config(),
           {{"original_max_position_embeddings", 64},
            {"rope_scaling",
             json::object{{"type", "longrope"}, {"short_factor", short_row}, {"long_factor", long_row}}}}),
      "config.json");
  const Rope rope = make_rope(*config, {.dims = kDims});
  EXPECT_EQ(rope.limit, 64);
  ASSERT_EQ(rope.beyond.size(), 8u);
  EXPECT_FLOAT_EQ(rope.inverse_frequency[1], static_cast<float>(plain(1)));
  EXPECT_FLOAT_EQ(rope.beyond[1], static_cast<float>(plain(1) / 2.0));
  const auto magnitude = static_cast<float>(std::sqrt(1.0 + std::log(4.0) / std::log(64.0)));
  EXPECT_FLOAT_EQ(rope.magnitude, magnitude);
  EXPECT_FLOAT_EQ(rope.magnitude_beyond, magnitude);
}

TEST(Rope, LongropeMayBeLouderBeyond) {
  const json::array row(8, 1.0);
  const Rope rope = rope_of({{"rope_type", "longrope"},
                             {"short_factor", row},
                             {"long_factor", row},
                             {"original_max_position_embeddings", 64},
                             {"short_mscale", 1.25},
                             {"long_mscale", 1.5}});
  EXPECT_FLOAT_EQ(rope.magnitude, 1.25f);
  EXPECT_FLOAT_EQ(rope.magnitude_beyond, 1.5f);
}

TEST(Rope, DynamicHasARowForEachLengthBeyondTheModels) {
  const Rope rope = rope_of({{"rope_type", "dynamic"}, {"factor", 2.0}});
  EXPECT_EQ(rope.limit, 256);
  ASSERT_EQ(rope.beyond.size(), 256u * 8u);  // up to twice the length
  for (int i = 0; i < 8; ++i) {
    EXPECT_FLOAT_EQ(rope.inverse_frequency[static_cast<size_t>(i)], static_cast<float>(plain(i)));
    for (const int length : {257, 300, 512}) {
      const double theta = 10000.0 * std::pow(2.0 * length / 256.0 - 1.0, 16.0 / 14.0);
      EXPECT_FLOAT_EQ(rope.beyond[static_cast<size_t>((length - 257) * 8 + i)],
                      static_cast<float>(plain(i, theta)));
    }
  }
}

TEST(Rope, StretchesWhatTheModelWasMadeFor) {
  const auto context = [](json::object keys, json::object more = {}) {
    json::object object = with(small_config(), {{"rope_parameters", std::move(keys)}});
    for (auto& [key, value] : more) object[key] = value;
    auto config = Config::from_json(std::move(object), "config.json");
    return stretched_context(*config, 256);
  };
  EXPECT_EQ(context({{"rope_type", "default"}}), 256);
  EXPECT_EQ(context({{"rope_type", "linear"}, {"factor", 4.0}}), 1024);
  EXPECT_EQ(context({{"rope_type", "linear"}, {"factor", 4.0}}, {{"rope_local_base_freq", 1e4}}), 256);
  EXPECT_EQ(context({{"rope_type", "dynamic"}, {"factor", 2.0}}), 512);
  const json::object yarn{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 256}};
  EXPECT_EQ(context(yarn), 1024);
  EXPECT_EQ(context({{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}}), 256);
}

TEST(Rope, TheOlderFormStandsWhereAFileHasBoth) {
  const json::object linear{{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 500.0}};
  const auto first = [&](json::object parameters, json::value scaling) {
    auto config = Config::from_json(with(small_config(), {{"rope_parameters", std::move(parameters)},
                                                          {"rope_scaling", std::move(scaling)},
                                                          {"rope_theta", 10000.0}}),
                                    "config.json");
    const Rope rope = make_rope(*config, {.dims = kDims, .layer_type = "full_attention"});
    EXPECT_TRUE(config->status().ok()) << config->status().error().message;
    return rope.inverse_frequency[1];
  };
  EXPECT_FLOAT_EQ(first(linear, json::object{{"type", "linear"}, {"factor", 2.0}}),
                  static_cast<float>(plain(1) / 2.0));
  EXPECT_FLOAT_EQ(first(linear, nullptr), static_cast<float>(plain(1, 500.0) / 4.0));
  EXPECT_FLOAT_EQ(first(linear, json::object{}), static_cast<float>(plain(1, 500.0) / 4.0));
  // Parameters of layer types are of a newer form than any rope_scaling.
  EXPECT_FLOAT_EQ(first({{"full_attention", linear}}, json::object{{"type", "linear"}, {"factor", 2.0}}),
                  static_cast<float>(plain(1, 500.0) / 4.0));
}

TEST(Rope, RefusesWhatCannotBe) {
  const auto said = [](json::object keys) {
    auto config =
        Config::from_json(with(small_config(), {{"rope_parameters", std::move(keys)}}), "config.json");
    make_rope(*config, {.dims = kDims});
    return config->status().ok() ? "" : config->status().error().message;
  };
  EXPECT_THAT(said({{"rope_type", "spiral"}}), testing::HasSubstr("'spiral'"));
  EXPECT_THAT(said({{"rope_theta", 0.5}}), testing::HasSubstr("'rope_theta' is 0.5"));
  EXPECT_THAT(said({{"rope_type", "linear"}, {"factor", 0.0}}), testing::HasSubstr("factor 0"));
  EXPECT_THAT(said({{"rope_type", "longrope"}, {"short_factor", json::array{1.0}}}),
              testing::HasSubstr("longrope has 1 factors for 8 pairs"));
}

TEST(Rope, LongropeIsLouderByItsFactorOrByTheLengths) {
  const json::array row(8, 1.0);
  json::object keys{{"rope_type", "longrope"},
                    {"short_factor", row},
                    {"long_factor", row},
                    {"original_max_position_embeddings", 64}};
  const auto magnitude = [](double factor) { return std::sqrt(1.0 + std::log(factor) / std::log(64.0)); };
  EXPECT_NEAR(rope_of(keys).magnitude, magnitude(4.0), 1e-6);  // 256 positions in all
  EXPECT_EQ(rope_of(keys).limit, 64);
  keys["factor"] = 16.0;
  EXPECT_NEAR(rope_of(keys).magnitude, magnitude(16.0), 1e-6);
}

}  // namespace sluice::models

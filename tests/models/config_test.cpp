#include "models/loading/config/config.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <limits>

#include "tests/models/specs.h"

namespace sluice::models {

TEST(Config, BringsOlderNamesToTheCommonOnes) {
  auto config = Config::from_json({{"architectures", json::array{"GPT2LMHeadModel"}},
                                   {"n_embd", 64},
                                   {"n_head", 4},
                                   {"n_layer", 3},
                                   {"n_positions", 128},
                                   {"layer_norm_epsilon", 1e-5}},
                                  "config.json");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->size("hidden_size"), 64);
  EXPECT_EQ(config->size("num_attention_heads"), 4);
  EXPECT_EQ(config->size("num_hidden_layers"), 3);
  EXPECT_EQ(config->size("max_position_embeddings"), 128);
  EXPECT_FLOAT_EQ(config->number("layer_norm_eps"), 1e-5f);
  EXPECT_TRUE(config->status().ok());
}

TEST(Config, KeepsTheCommonNameWhereBothAreThere) {
  auto config = Config::from_json(with(small_config(), {{"n_embd", 8}}), "config.json");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->size("hidden_size"), 64);
}

TEST(Config, LooksIntoTheTextPartOfAModelThatSees) {
  auto config = Config::from_json({{"architectures", json::array{"Gemma3ForConditionalGeneration"}},
                                   {"text_config", json::object{{"hidden_size", 96}}}},
                                  "config.json");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->size("hidden_size"), 96);
}

// As LLaVA 1.5 and Gemma 3 4B are published.
TEST(Config, TakesWhatATextPartLeavesOutFromItsClass) {
  const auto text_of = [](json::object text) {
    return Config::from_json({{"architectures", json::array{"Some"}}, {"text_config", std::move(text)}},
                             "config.json");
  };
  auto llava = text_of({{"model_type", "llama"}, {"vocab_size", 32064}, {"rms_norm_eps", 1e-5}});
  ASSERT_TRUE(llava.ok());
  EXPECT_EQ(llava->size("hidden_size"), 4096);
  EXPECT_EQ(llava->size("num_attention_heads"), 32);
  EXPECT_EQ(llava->size("vocab_size"), 32064);
  EXPECT_FLOAT_EQ(llava->number("rms_norm_eps"), 1e-5f);
  EXPECT_FALSE(llava->has("num_key_value_heads"));
  auto gemma = text_of({{"model_type", "gemma3_text"}, {"hidden_size", 2560}, {"sliding_window", nullptr}});
  ASSERT_TRUE(gemma.ok());
  EXPECT_EQ(gemma->size("num_attention_heads"), 8);
  EXPECT_EQ(gemma->size("head_dim"), 256);
  EXPECT_EQ(gemma->size("hidden_size"), 2560);
  EXPECT_TRUE(gemma->is_null("sliding_window"));
}

// As Mamba 2 and Nemotron-H are published.
TEST(Config, ReadsLimitsThatAreInfinite) {
  const std::string path = testing::TempDir() + "infinite_config.json";
  std::ofstream(path) << R"({"architectures": ["Mamba2ForCausalLM"], "time_step_limit": [0.0, Infinity]})";
  const Result<json::object> object = read_config_file(path);
  std::remove(path.c_str());
  ASSERT_TRUE(object.ok()) << problem(object);
  auto config = Config::from_json(*object, path);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->numbers("time_step_limit"),
            (std::vector<double>{0.0, std::numeric_limits<double>::infinity()}));
}

TEST(Config, GivesGgufKeysTheNamesOfConfigJson) {
  formats::GgufMetadata metadata = small_metadata("llama");
  metadata.set("llama.rope.freq_base", 500000.0);
  metadata.set("llama.attention.sliding_window", int64_t{128});
  metadata.set("llama.attention.head_count_kv", formats::GgufArray(std::vector<int64_t>{2, 2, 2, 2}));
  auto config = Config::from_gguf(metadata, "model.gguf");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->size("hidden_size"), 64);
  EXPECT_EQ(config->size("num_key_value_heads"), 2);  // one value where all layers agree
  EXPECT_EQ(config->size("sliding_window"), 128);
  EXPECT_FLOAT_EQ(config->number("rope_theta"), 500000.0f);
  EXPECT_TRUE(config->status().ok());
}

TEST(Config, TakesTheVocabularyFromTheTokensWhereNoKeySaysIt) {
  formats::GgufMetadata metadata;
  metadata.set("general.architecture", std::string_view("llama"));
  metadata.set("tokenizer.ggml.tokens", formats::GgufArray(std::vector<std::string_view>{"a", "b", "c"}));
  auto config = Config::from_gguf(metadata, "model.gguf");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->size("vocab_size"), 3);
}

TEST(Config, RemembersTheFirstProblem) {
  auto config = Config::from_json(small_config(), "config.json");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->size("missing"), 1);
  EXPECT_EQ(config->size("also_missing"), 1);
  EXPECT_EQ(config->status().error().message, "config.json: 'missing' is missing");
}

TEST(Config, SharesProblemsWithItsParts) {
  auto config = Config::from_json(with(small_config(), {{"rope_scaling", json::object{{"factor", "much"}}}}),
                                  "config.json");
  ASSERT_TRUE(config.ok());
  config->sub("rope_scaling").number_or("factor", 1.0f);
  EXPECT_FALSE(config->status().ok());
}

TEST(Config, NeedsAnArchitecture) {
  EXPECT_EQ(problem(Config::from_json({}, "config.json")),
            "config.json: 'architectures' is missing or empty");
  EXPECT_EQ(problem(Config::from_gguf({}, "model.gguf")),
            "model.gguf: metadata key 'general.architecture' is missing");
}

TEST(Config, AsksTheFileWhichTensorsItHolds) {
  auto config = Config::from_json(small_config(), "config.json");
  ASSERT_TRUE(config.ok());
  EXPECT_FALSE(config->stores("a"));
  config->set_tensors([](std::string_view name) { return name == "a" ? 1 : -1; });
  EXPECT_TRUE(config->stores("a"));
  EXPECT_EQ(config->stored_rows("a"), 1);
  EXPECT_FALSE(config->stores("b"));
}

}  // namespace sluice::models

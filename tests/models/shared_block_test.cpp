// Layers that share blocks of attention and feed-forward (Zamba 2).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/placement.h"
#include "tests/models/specs.h"

namespace sluice::models {

namespace {

using testing::HasSubstr;
using Keys = std::initializer_list<std::pair<std::string_view, json::value>>;

json::object zamba(Keys keys = {}) {
  const json::array kinds{"hybrid", "mamba", "hybrid", "linear_attention", "hybrid", "hybrid"};
  return with(with(small_config("Zamba2ForCausalLM"), {{"num_hidden_layers", 6},
                                                       {"layers_block_type", kinds},
                                                       {"num_mem_blocks", 2},
                                                       {"n_mamba_heads", 8},
                                                       {"mamba_d_state", 16},
                                                       {"adapter_rank", 4}}),
              keys);
}

ModelSpec shared_blocks(Keys keys = {}) {
  Result<ModelSpec> spec = spec_of(zamba(keys));
  EXPECT_TRUE(spec.ok()) << problem(spec);
  return spec.ok() ? std::move(*spec) : ModelSpec();
}

const StateSpaceAfterBlock& shared_mixer(const ModelSpec& spec, size_t layer) {
  return std::get<StateSpaceAfterBlock>(spec.layers.at(layer).mixer);
}

}  // namespace

TEST(SharedBlock, LayersRunThemInTurn) {
  const ModelSpec spec = shared_blocks();
  EXPECT_TRUE(std::holds_alternative<StateSpace>(spec.layers.at(1).mixer));
  EXPECT_TRUE(std::holds_alternative<StateSpace>(spec.layers.at(3).mixer));
  EXPECT_EQ(shared_mixer(spec, 0).block_from, -1);
  EXPECT_EQ(shared_mixer(spec, 2).block_from, -1);
  EXPECT_EQ(shared_mixer(spec, 4).block_from, 0);
  EXPECT_EQ(shared_mixer(spec, 5).block_from, 2);
  EXPECT_EQ(shared_mixer(spec, 5).use, 3);
  EXPECT_EQ(shared_mixer(spec, 5).block_names, "model.layers.2.shared_transformer");
  EXPECT_EQ(shared_mixer(spec, 5).scan_names, "model.layers.5.mamba_decoder");
}

TEST(SharedBlock, LayersRunTheirOwnWhereTheFileHasOne) {
  Result<Config> config = Config::from_json(zamba(), "config.json");
  ASSERT_TRUE(config.ok());
  config->set_tensors([](std::string_view name) {
    return name == "model.layers.4.shared_transformer.self_attn.q_proj.weight" ? 64 : -1;
  });
  const Result<ModelSpec> spec = build_spec(*config);
  ASSERT_TRUE(spec.ok()) << problem(spec);
  EXPECT_EQ(shared_mixer(*spec, 4).block_from, -1);
  EXPECT_EQ(shared_mixer(*spec, 4).block_names, "model.layers.4.shared_transformer");
  EXPECT_EQ(shared_mixer(*spec, 5).block_from, 2);
}

TEST(SharedBlock, ItsHeadsReadTwiceTheWidth) {
  const ModelSpec spec = shared_blocks();
  const Attention& attention = shared_mixer(spec, 0).attention;
  EXPECT_EQ(attention.head_dim, 32);
  EXPECT_EQ(attention.input_dim, 128);
  EXPECT_FLOAT_EQ(attention.scale, 1.0f / std::sqrt(16.0f));
  EXPECT_EQ(attention.rope, -1);
  EXPECT_EQ(attention.adapter_rank, 0);
  EXPECT_EQ(shared_mixer(shared_blocks({{"use_mem_rope", true}}), 0).attention.rope, 0);
  EXPECT_EQ(shared_mixer(shared_blocks({{"use_shared_attention_adapter", true}}), 0).attention.adapter_rank,
            4);
}

TEST(SharedBlock, LayersMayBeListedByNumber) {
  const ModelSpec spec =
      shared_blocks({{"layers_block_type", nullptr}, {"hybrid_layer_ids", json::array{1, 4}}});
  EXPECT_TRUE(std::holds_alternative<StateSpace>(spec.layers.at(0).mixer));
  EXPECT_EQ(shared_mixer(spec, 4).use, 1);
}

TEST(SharedBlock, WeightsCountOnceAndWorkEveryTime) {
  const int64_t block = 128 * (128 + 2 * 64) + 64 * 128 + 3 * 64 * 96;  // qkv, output, feed-forward
  const int64_t own = 64 * 64 + 4 * (64 + 2 * 96);                      // projection, adapter
  const ModelSpec spec = shared_blocks();
  const ModelSpec without = shared_blocks(
      {{"layers_block_type", json::array{"mamba", "mamba", "mamba", "mamba", "mamba", "mamba"}}});
  EXPECT_EQ(parameter_count(spec) - parameter_count(without), 2 * block + 4 * own);
  EXPECT_EQ(active_parameter_count(spec) - active_parameter_count(without), 4 * (block + own));
}

TEST(SharedBlock, KeepsKeysAndAState) {
  const std::vector<LayerState> states = layer_states(shared_blocks());
  ASSERT_NE(kv_of(states, 2), nullptr);
  EXPECT_EQ(kv_of(states, 2)->width(), 2 * 2 * 32);
  EXPECT_NE(recurrent_of(states[2]), nullptr);
  EXPECT_EQ(kv_of(states, 1), nullptr);
}

TEST(SharedBlock, DescribesWhoseWeightsItHas) {
  EXPECT_THAT(describe(shared_blocks()), HasSubstr("# weights of layer 2"));
  EXPECT_THAT(describe(shared_blocks()), HasSubstr("adapters of 4"));
}

TEST(SharedBlock, RefusesWhatItCannotTell) {
  const auto refused = [](Keys keys) { return problem(spec_of(zamba(keys))); };
  EXPECT_THAT(refused({{"layers_block_type", json::array{"mamba"}}}), HasSubstr("layers_block_type"));
  EXPECT_THAT(refused({{"layers_block_type", nullptr}}), HasSubstr("hybrid_layer_ids"));
  EXPECT_THAT(refused({{"layers_block_type", nullptr}, {"hybrid_layer_ids", json::array{6}}}),
              HasSubstr("hybrid_layer_ids"));
  EXPECT_THAT(
      refused({{"layers_block_type", json::array{"mamba", "mamba", "mamba", "mamba", "mamba", "rwkv"}}}),
      HasSubstr("'rwkv'"));
  EXPECT_THAT(refused({{"use_mem_rope", true}, {"use_long_context", true}}), HasSubstr("use_long_context"));
  EXPECT_THAT(refused({{"mamba_ngroups", 3}}), HasSubstr("3 groups"));
}

// The embeddings of tokens are where the first stage is.
TEST(SharedBlock, IsNotCutOverStages) {
  const Result<ModelSpec> part = cut(shared_blocks(), {.stage = {0, 2}});
  ASSERT_FALSE(part.ok());
  EXPECT_THAT(part.error().message, HasSubstr("the token's embedding"));
}

}  // namespace sluice::models

// Indexers from configs: which layers have one, what is refused, and what is left without them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/placement.h"
#include "specs.h"

namespace sluice::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

json::object indexed_config(std::string_view architecture = "GlmMoeDsaForCausalLM") {
  return with(small_config(architecture), {{"q_lora_rank", 24},
                                           {"kv_lora_rank", 16},
                                           {"qk_rope_head_dim", 8},
                                           {"qk_nope_head_dim", 8},
                                           {"v_head_dim", 8},
                                           {"num_key_value_heads", 4},
                                           {"index_topk", 32},
                                           {"index_n_heads", 6},
                                           {"index_head_dim", 16}});
}

const LatentAttention& latent_mixer(const ModelSpec& spec, size_t layer) {
  return std::get<LatentAttention>(spec.layers[layer].mixer);
}

std::vector<int> index_heads(const Result<ModelSpec>& spec) {
  std::vector<int> heads;
  if (spec.ok())
    for (size_t i = 0; i < spec->layers.size(); ++i) heads.push_back(latent_mixer(*spec, i).indexer.heads);
  return heads;
}

TEST(Indexers, EveryLayerHasOneAndKeepsItsKeys) {
  const Result<ModelSpec> spec = spec_of(indexed_config("DeepseekV32ForCausalLM"));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_THAT(index_heads(spec), ElementsAre(6, 6, 6, 6));
  EXPECT_EQ(latent_mixer(*spec, 0).indexer.style, RopeStyle::NeoX);
  EXPECT_EQ(spec->context, 256);
  EXPECT_EQ(spec->context_limit, 0);
  EXPECT_EQ(positions_before_choice(*spec), 32);
  EXPECT_EQ(kv_bytes_per_token(*spec, DType::F16), 4 * 2 * (16 + 8 + 16));
  EXPECT_THAT(describe(*spec), HasSubstr("to 32 positions that an indexer(6 heads x 16) chooses"));
}

TEST(Indexers, GlmSharesChoicesBetweenLayers) {
  EXPECT_EQ(latent_mixer(*spec_of(indexed_config()), 0).indexer.style, RopeStyle::GptJ);
  const Result<ModelSpec> halves = spec_of(with(indexed_config(), {{"indexer_rope_interleave", false}}));
  EXPECT_EQ(latent_mixer(*halves, 0).indexer.style, RopeStyle::NeoX);
  const json::array types{"full", "shared", "shared", "full"};
  const Result<ModelSpec> spec = spec_of(with(indexed_config(), {{"indexer_types", types}}));
  EXPECT_THAT(index_heads(spec), ElementsAre(6, 0, 0, 6));
  EXPECT_EQ(kv_bytes_per_token(*spec, DType::F16), 2 * (4 * (16 + 8) + 2 * 16));
  EXPECT_THAT(describe(*spec), HasSubstr("to the positions of the layer before"));
  EXPECT_THAT(index_heads(spec_of(with(indexed_config(), {{"index_topk_pattern", "FSFS"}}))),
              ElementsAre(6, 0, 6, 0));
  // Of layers 0 to 3 with offset 2, the choice is made anew where max(layer - 1, 0) is even.
  EXPECT_THAT(index_heads(spec_of(with(indexed_config(), {{"index_topk_freq", 2}}))),
              ElementsAre(6, 6, 0, 6));
}

TEST(Indexers, WhatCannotBeIsRefused) {
  const auto said = [](std::string_view key, json::value value) {
    const Result<ModelSpec> spec = spec_of(with(indexed_config(), {{key, std::move(value)}}));
    return spec.ok() ? std::string() : spec.error().message;
  };
  EXPECT_THAT(said("indexer_types", json::array{"shared", "full", "full", "full"}), HasSubstr("layer 0"));
  EXPECT_THAT(said("indexer_types", json::array{"full"}), HasSubstr("the model has 4"));
  EXPECT_THAT(said("index_head_dim", 4), HasSubstr("'index_head_dim' is 4"));
  EXPECT_THAT(said("index_n_heads", 1 << 22), HasSubstr("'index_n_heads'"));
  EXPECT_THAT(said("q_lora_rank", nullptr), HasSubstr("'q_lora_rank' is missing"));
}

TEST(Indexers, WithoutThemTheModelEndsWhereChoicesBegin) {
  Result<ModelSpec> spec = spec_of(indexed_config());
  ASSERT_TRUE(spec.ok());
  drop_indexers(*spec);
  EXPECT_EQ(spec->context, 32);
  EXPECT_EQ(spec->context_limit, 32);
  EXPECT_EQ(positions_before_choice(*spec), 0);
  EXPECT_EQ(kv_bytes_per_token(*spec, DType::F16), 4 * 2 * (16 + 8));
}

TEST(Indexers, AStageDoesNotBeginWithALayerThatReadsAChoice) {
  const json::array types{"full", "full", "shared", "full"};
  const Result<ModelSpec> spec = spec_of(with(indexed_config(), {{"indexer_types", types}}));
  ASSERT_TRUE(spec.ok());
  const Result<ModelSpec> part = cut(*spec, {.stage = {0, 2}, .stage_layers = {2, 2}});
  ASSERT_FALSE(part.ok());
  EXPECT_EQ(part.error().message,
            "layer 2 attends to the positions that layer 1 chose, which lies on another stage (--pp)");
  EXPECT_EQ(cut(*spec, {.stage = {0, 2}}).value().layers.size(), 1u);  // where stages are not cut by hand
  EXPECT_TRUE(cut(*spec, {.stage = {0, 4}}).error().message.find("(--pp)") != std::string::npos);
  const Result<ModelSpec> own = spec_of(indexed_config());
  EXPECT_TRUE(cut(*own, {.stage = {1, 2}}).ok());
  EXPECT_TRUE(cut(*own, {.tensor = {1, 2}}).ok());
}

json::object blocked_config() {
  return with(small_config("MiniMaxM3VLForCausalLM"),
              {{"num_attention_heads", 4},
               {"num_key_value_heads", 4},
               {"num_local_experts", 4},
               {"num_experts_per_tok", 2},
               {"dense_intermediate_size", 32},
               {"shared_intermediate_size", 32},
               {"layer_types",
                json::array{"full_attention", "minimax_m3_sparse", "minimax_m3_sparse", "minimax_m3_sparse"}},
               {"index_topk_blocks", 4},
               {"index_block_size", 8},
               {"index_n_heads", 2},
               {"index_head_dim", 24}});
}

TEST(Indexers, OfBlocksKeepOneKeyBesideTheHeads) {
  Result<ModelSpec> spec = spec_of(blocked_config());
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const int64_t heads = kv_bytes_per_token(*spec, DType::F16) - 3 * 2 * 24;
  EXPECT_EQ(spec->context_limit, 0);
  EXPECT_EQ(positions_before_choice(*spec), 32);
  EXPECT_FALSE(takes_positions(*spec));
  EXPECT_THAT(
      describe(*spec),
      HasSubstr("to 4 blocks of 8 positions that an indexer(2 heads x 24) chooses, the last 1 always"));
  const int64_t parameters = parameter_count(*spec);
  drop_indexers(*spec);
  EXPECT_EQ(kv_bytes_per_token(*spec, DType::F16), heads);
  EXPECT_EQ(spec->context_limit, 32);
  EXPECT_EQ(parameters - parameter_count(*spec), 3 * int64_t{spec->dim} * (2 + 1) * 24);
}

TEST(Indexers, OfBlocksRefuseWhatIsNotComputed) {
  const auto said = [](std::string_view key, int value) {
    const Result<ModelSpec> spec = spec_of(with(blocked_config(), {{key, value}}));
    return spec.ok() ? std::string() : spec.error().message;
  };
  EXPECT_THAT(said("index_local_blocks", 0), HasSubstr("'index_local_blocks' is 0"));
  EXPECT_THAT(said("index_local_blocks", 5), HasSubstr("'index_local_blocks' is 5"));
  EXPECT_THAT(said("index_n_heads", 3), HasSubstr("'index_n_heads' is 3"));
  EXPECT_THAT(said("index_head_dim", 8), HasSubstr("'index_head_dim' is 8"));
  EXPECT_THAT(said("index_block_size", 1 << 21), HasSubstr("'index_block_size' is 2097152"));
}

TEST(Indexers, OfBlocksAreCutWithTheirHeads) {
  const Result<ModelSpec> spec = spec_of(blocked_config());
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const auto indexer = [&](int rank, int ranks) {
    return std::get<Attention>(cut(*spec, {.tensor = {rank, ranks}}).value().layers[1].mixer).indexer.heads;
  };
  EXPECT_EQ(indexer(0, 2), 1);
  EXPECT_EQ(indexer(3, 4), 1);
  const Attention& whole = std::get<Attention>(spec->layers[1].mixer);
  EXPECT_EQ(index_heads_of(whole, {2, 4}).begin, 1);
  EXPECT_EQ(index_heads_of(whole, {1, 4}).begin, 0);
  EXPECT_TRUE(cut(*spec, {.context = {0, 2}}).ok());
  EXPECT_THAT(cut(*spec, {.context = {0, 3}}).error().message,
              HasSubstr("layer 1 chooses blocks of 8 positions, which 3 ranks (--cp) cannot share"));
}

}  // namespace
}  // namespace sluice::models

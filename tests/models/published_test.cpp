// Configs as families publish them mean what those say that transformers writes.
#include "models/loading/config/published.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/models/specs.h"

namespace sluice::models {

namespace {

ModelSpec spec_or_fail(const json::object& config) {
  Result<ModelSpec> spec = spec_of(config);
  EXPECT_TRUE(spec.ok()) << problem(spec);
  return spec.ok() ? std::move(*spec) : ModelSpec();
}

json::array alternating(size_t count, const json::value& even, const json::value& odd) {
  json::array list;
  for (size_t i = 0; i < count; ++i) list.push_back(i % 2 == 0 ? even : odd);
  return list;
}

json::object experts(std::string_view architecture) {
  return with(small_config(architecture), {{"num_experts_per_tok", 2},
                                           {"moe_num_experts", 4},
                                           {"moe_intermediate_size", 16},
                                           {"head_dim", 16},
                                           {"sliding_window", 8}});
}

// With an entry for a layer that guesses a further token in every list.
json::object published_step3() {
  json::object config = with(
      experts("Step3p5ForCausalLM"),
      {{"num_attention_groups", 2},
       {"num_nextn_predict_layers", 1},
       {"share_expert_dims", 24},
       {"layer_types", alternating(5, "full_attention", "sliding_attention")},
       {"moe_layers_enum", "1, 3,4"},
       {"attention_other_setting", json::object{{"num_attention_heads", 6}, {"num_attention_groups", 2}}},
       {"rope_theta", alternating(5, 1e6, 1e4)},
       {"partial_rotary_factors", alternating(5, 0.5, 1.0)},
       {"rope_scaling", json::object{{"rope_type", "linear"}, {"factor", 2.0}}},
       {"swiglu_limits", json::array{0.0, 0.5, 0.0, 0.25, 1.0}},
       {"swiglu_limits_shared", json::array{0.0, 0.0, 0.0, 0.75, 1.0}}});
  config.erase("num_key_value_heads");
  return config;
}

json::object written_step3() {
  const json::object full{
      {"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 1e6}, {"partial_rotary_factor", 0.5}};
  const json::object sliding{{"rope_type", "default"}, {"rope_theta", 1e4}, {"partial_rotary_factor", 1.0}};
  const json::object heads{{"num_attention_heads", 6}};
  return with(experts("Step3p5ForCausalLM"),
              {{"share_expert_dim", 24},
               {"layer_types", alternating(4, "full_attention", "sliding_attention")},
               {"mlp_layer_types", alternating(4, "dense", "sparse")},
               {"per_layer_config", json::object{{"1", heads}, {"3", heads}}},
               {"rope_parameters", json::object{{"full_attention", full}, {"sliding_attention", sliding}}},
               {"swiglu_limits", json::array{0.0, 0.5, 0.0, 0.25}},
               {"swiglu_limits_shared", json::array{0.0, 0.0, 0.0, 0.75}}});
}

}  // namespace

TEST(Published, Step3) {
  const ModelSpec published = spec_or_fail(published_step3()), written = spec_or_fail(written_step3());
  EXPECT_EQ(describe(published), describe(written));
  ASSERT_EQ(published.ropes.size(), 2u);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(published.ropes[i].inverse_frequency, written.ropes.at(i).inverse_frequency) << i;
  EXPECT_EQ(std::get<Attention>(published.layers.at(1).mixer).heads, 6);
  EXPECT_EQ(std::get<MoeFfn>(published.layers.at(3).ffn).shared_limit, 0.75f);
}

TEST(Published, Step3RefusesMixturesThatAreNoNumbers) {
  EXPECT_THAT(problem(spec_of(with(published_step3(), {{"moe_layers_enum", "1,two"}}))),
              testing::HasSubstr("'moe_layers_enum' is '1,two'"));
}

TEST(Published, MimoV2) {
  const json::object common = with(experts("MiMoV2FlashForCausalLM"), {{"v_head_dim", 8}});
  const ModelSpec published = spec_or_fail(with(common, {{"hybrid_layer_pattern", json::array{0, 1, 1, 0}},
                                                         {"moe_layer_freq", json::array{0, 1, 0, 1}},
                                                         {"sliding_window_size", 8},
                                                         {"partial_rotary_factor", 0.334},
                                                         {"rope_theta", 5e6},
                                                         {"swa_rope_theta", 1e4}}));
  const auto rope = [](double theta) {
    return json::object{{"rope_theta", theta}, {"partial_rotary_factor", 0.334}};
  };
  const ModelSpec written = spec_or_fail(with(
      common,
      {{"layer_types",
        json::array{"full_attention", "sliding_attention", "sliding_attention", "full_attention"}},
       {"mlp_layer_types", json::array{"dense", "sparse", "dense", "sparse"}},
       {"sliding_window", 9},
       {"rope_parameters", json::object{{"full_attention", rope(5e6)}, {"sliding_attention", rope(1e4)}}}}));
  EXPECT_EQ(describe(published), describe(written));
  ASSERT_EQ(published.ropes.size(), 2u);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(published.ropes[i].inverse_frequency, written.ropes.at(i).inverse_frequency) << i;
}

TEST(Published, MiniMaxM3) {
  const json::object common = with(experts("MiniMaxM3SparseForConditionalGeneration"),
                                   {{"dense_intermediate_size", 40}, {"shared_intermediate_size", 24}});
  const ModelSpec published = spec_or_fail(with(
      common, {{"moe_layer_freq", json::array{0, 1, 1, 1}},
               {"sparse_attention_config", json::object{{"sparse_attention_freq", json::array{0, 0, 1, 1}},
                                                        {"sparse_block_size", 16},
                                                        {"sparse_topk_blocks", 4},
                                                        {"sparse_local_block", 2},
                                                        {"sparse_num_index_heads", 2},
                                                        {"sparse_index_dim", 24}}}}));
  const ModelSpec written =
      spec_or_fail(with(common, {{"mlp_layer_types", json::array{"dense", "sparse", "sparse", "sparse"}},
                                 {"layer_types", json::array{"full_attention", "full_attention",
                                                             "minimax_m3_sparse", "minimax_m3_sparse"}},
                                 {"index_block_size", 16},
                                 {"index_topk_blocks", 4},
                                 {"index_local_blocks", 2},
                                 {"index_n_heads", 2},
                                 {"index_head_dim", 24}}));
  EXPECT_EQ(describe(published), describe(written));
  EXPECT_EQ(positions_before_choice(published), 64);
  EXPECT_EQ(std::get<Attention>(published.layers.at(1).mixer).indexer.chosen, 0);
  const BlockIndexer& indexer = std::get<Attention>(published.layers.at(2).mixer).indexer;
  EXPECT_EQ(indexer.local, 2);
  EXPECT_EQ(indexer.heads, 2);
  EXPECT_EQ(indexer.dim, 24);
}

}  // namespace sluice::models

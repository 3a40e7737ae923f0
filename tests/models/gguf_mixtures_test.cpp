// GGUF files of MiMo V2, Step 3.5 and MiniMax M3, as llama.cpp's converter writes their metadata.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "models/placement.h"
#include "specs.h"

namespace sluice::models {
namespace {

using formats::GgufArray;

const Attention& attention_of(const ModelSpec& spec, size_t layer) {
  return std::get<Attention>(spec.layers.at(layer).mixer);
}

formats::GgufMetadata mixture_metadata(std::string_view architecture) {
  formats::GgufMetadata metadata = small_metadata(architecture);
  const auto key = [&](const char* name) { return std::string(architecture) + "." + name; };
  metadata.set(key("expert_count"), int64_t{4});
  metadata.set(key("expert_used_count"), int64_t{2});
  metadata.set(key("expert_feed_forward_length"), int64_t{32});
  metadata.set(key("attention.key_length"), int64_t{16});
  return metadata;
}

// Of a file that holds these tensors, by their rows.
ModelSpec spec_with(const formats::GgufMetadata& metadata, const std::map<std::string, int64_t>& tensors) {
  Result<Config> config = Config::from_gguf(metadata, "model.gguf");
  EXPECT_TRUE(config.ok());
  config->set_tensors([&](std::string_view name) {
    const auto found = tensors.find(std::string(name));
    return found == tensors.end() ? int64_t{-1} : found->second;
  });
  Result<ModelSpec> spec = build_spec(*config);
  EXPECT_TRUE(spec.ok()) << (spec.ok() ? "" : spec.error().message);
  return spec.ok() ? *spec : ModelSpec();
}

TEST(GgufMixtures, MimoV2) {
  formats::GgufMetadata metadata = mixture_metadata("mimo2");
  metadata.set("mimo2.block_count", int64_t{6});
  metadata.set("mimo2.nextn_predict_layers", int64_t{3});
  metadata.set("mimo2.attention.head_count_kv", GgufArray(std::vector<int64_t>{1, 2, 1, 2, 2, 2}));
  metadata.set("mimo2.attention.sliding_window", int64_t{8});
  metadata.set("mimo2.attention.sliding_window_pattern", GgufArray(std::vector<int64_t>{0, 1, 0, 1, 1, 1}));
  metadata.set("mimo2.attention.value_length", int64_t{8});
  metadata.set("mimo2.attention.value_scale", 0.5);
  metadata.set("mimo2.rope.dimension_count", int64_t{4});
  metadata.set("mimo2.rope.freq_base", 5e6);
  metadata.set("mimo2.rope.freq_base_swa", 1e3);
  const ModelSpec spec = spec_with(metadata, {{"blk.1.attn_sinks.weight", 4}});
  ASSERT_EQ(spec.layers.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const bool slides = i == 1;
    EXPECT_EQ(attention_of(spec, i).window, slides ? 8 : 0) << i;
    EXPECT_EQ(attention_of(spec, i).kv_heads, slides ? 2 : 1) << i;
    EXPECT_EQ(attention_of(spec, i).rope, slides ? 1 : 0) << i;
    EXPECT_EQ(attention_of(spec, i).sinks, slides) << i;
    EXPECT_EQ(attention_of(spec, i).value_dim, 8) << i;
    EXPECT_EQ(attention_of(spec, i).value_scale, 0.5f) << i;
    EXPECT_EQ(std::holds_alternative<MoeFfn>(spec.layers[i].ffn), i > 0) << i;
  }
  EXPECT_EQ(spec.ropes.at(0).inverse_frequency.size(), 2u);
  EXPECT_EQ(spec.ropes.at(1).note, "theta 1000");
  EXPECT_EQ(std::get<MoeFfn>(spec.layers[1].ffn).routing.score, kernels::Routing::Score::Sigmoid);
}

TEST(GgufMixtures, Step3) {
  formats::GgufMetadata metadata = mixture_metadata("step35");
  metadata.set("step35.attention.head_count", GgufArray(std::vector<int64_t>{4, 6, 6, 4}));
  metadata.set("step35.attention.head_count_kv", GgufArray(std::vector<int64_t>{2, 2, 2, 2}));
  metadata.set("step35.attention.sliding_window", int64_t{8});
  metadata.set("step35.attention.sliding_window_pattern", GgufArray(std::vector<int64_t>{0, 1, 1, 0}));
  metadata.set("step35.rope.freq_base", 1e6);
  metadata.set("step35.rope.freq_base_swa", 1e3);
  metadata.set("step35.expert_shared_feed_forward_length", int64_t{24});
  metadata.set("step35.expert_weights_scale", 2.5);
  metadata.set("step35.leading_dense_block_count", int64_t{1});
  metadata.set("step35.swiglu_clamp_exp", GgufArray(std::vector<double>{0, 0, 0.5, 7}));
  metadata.set("step35.swiglu_clamp_shexp", GgufArray(std::vector<double>{0.25, 0, 0, 16}));
  const ModelSpec spec = spec_with(metadata, {});
  ASSERT_EQ(spec.layers.size(), 4u);
  EXPECT_EQ(attention_of(spec, 1).heads, 6);
  EXPECT_EQ(attention_of(spec, 1).window, 8);
  EXPECT_EQ(attention_of(spec, 3).heads, 4);
  EXPECT_EQ(attention_of(spec, 3).window, 0);
  EXPECT_EQ(spec.ropes.at(0).inverse_frequency.size(), 4u);  // of half a head
  EXPECT_EQ(spec.ropes.at(1).inverse_frequency.size(), 8u);
  EXPECT_EQ(spec.ropes.at(1).note, "theta 1000");
  EXPECT_EQ(std::get<DenseFfn>(spec.layers[0].ffn).limit, 0.25f);
  const auto& last = std::get<MoeFfn>(spec.layers[3].ffn);
  EXPECT_EQ(last.limit, 7.0f);
  EXPECT_EQ(last.shared_limit, 16.0f);
  EXPECT_EQ(last.shared_inner, 24);
  EXPECT_EQ(last.routing.scale, 2.5f);
  EXPECT_EQ(std::get<MoeFfn>(spec.layers[2].ffn).limit, 0.5f);
  EXPECT_EQ(spec.names.rows(WeightSlot::QNorm).at(0).fold, Fold::None);
}

TEST(GgufMixtures, MiniMaxM3) {
  formats::GgufMetadata metadata = mixture_metadata("minimax-m3");
  metadata.set("minimax-m3.rope.dimension_count", int64_t{8});
  metadata.set("minimax-m3.expert_shared_count", int64_t{1});
  metadata.set("minimax-m3.expert_weights_scale", 2.0);
  metadata.set("minimax-m3.leading_dense_block_count", int64_t{1});
  metadata.set("minimax-m3.attention.indexer.head_count", int64_t{2});
  metadata.set("minimax-m3.attention.indexer.key_length", int64_t{12});
  metadata.set("minimax-m3.attention.indexer.top_k", int64_t{5});
  metadata.set("minimax-m3.attention.indexer.block_size", int64_t{4});
  metadata.set("minimax-m3.attention.indexer.local_blocks", int64_t{2});
  const ModelSpec spec =
      spec_with(metadata, {{"blk.3.indexer.q_proj.weight", 24}, {"blk.1.ffn_up_shexp.weight", 40}});
  ASSERT_EQ(spec.layers.size(), 4u);
  EXPECT_EQ(attention_of(spec, 2).indexer.chosen, 0);
  const BlockIndexer& indexer = attention_of(spec, 3).indexer;
  EXPECT_EQ(indexer.chosen, 5);
  EXPECT_EQ(indexer.size, 4);
  EXPECT_EQ(indexer.local, 2);
  EXPECT_EQ(indexer.heads, 2);
  EXPECT_EQ(indexer.dim, 12);
  EXPECT_EQ(spec.ropes.at(0).inverse_frequency.size(), 4u);
  EXPECT_EQ(std::get<DenseFfn>(spec.layers[0].ffn).inner, 96);
  const auto& experts = std::get<MoeFfn>(spec.layers[1].ffn);
  EXPECT_EQ(experts.inner, 32);
  EXPECT_EQ(experts.shared_inner, 40);
  EXPECT_EQ(spec.names.rows(WeightSlot::MixerNorm).at(0).fold, Fold::None);
}

}  // namespace
}  // namespace sluice::models

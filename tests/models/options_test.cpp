// Options that configs of a family may set otherwise than its published models do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/models/specs.h"

namespace sluice::models {

namespace {

using Keys = std::initializer_list<std::pair<std::string_view, json::value>>;

ModelSpec built(std::string_view architecture, Keys keys) {
  Result<ModelSpec> spec = spec_of(with(small_config(architecture), keys));
  EXPECT_TRUE(spec.ok()) << problem(spec);
  return spec.ok() ? std::move(*spec) : ModelSpec();
}

const Attention& mixer(const ModelSpec& spec, size_t layer) {
  return std::get<Attention>(spec.layers.at(layer).mixer);
}

Activation inner_activation(const ModelSpec& spec) {
  return std::get<DenseFfn>(spec.layers.at(0).ffn).activation;
}

}  // namespace

TEST(Options, GemmaMayHaveAnotherActivationAndAnOutputOfItsOwn) {
  const ModelSpec plain = built("Gemma2ForCausalLM", {});
  EXPECT_TRUE(plain.tied_output);
  EXPECT_EQ(inner_activation(plain), Activation::GeluTanh);
  EXPECT_EQ(inner_activation(built("Gemma2ForCausalLM", {{"hidden_activation", "gelu"}})), Activation::Gelu);
  EXPECT_FALSE(built("Gemma2ForCausalLM", {{"tie_word_embeddings", false}}).tied_output);
}

TEST(Options, TheGeluOfGemma1IsTheApproximation) {
  EXPECT_EQ(inner_activation(built("GemmaForCausalLM", {{"hidden_act", "gelu"}})), Activation::GeluTanh);
  EXPECT_EQ(inner_activation(built("GemmaForCausalLM", {{"hidden_act", "silu"}})), Activation::Silu);
}

TEST(Options, Gemma3CapsNoScores) {
  EXPECT_EQ(mixer(built("Gemma3ForCausalLM", {{"attn_logit_softcapping", 50.0}}), 0).softcap, 0.0f);
  EXPECT_EQ(mixer(built("Gemma2ForCausalLM", {{"attn_logit_softcapping", 50.0}}), 0).softcap, 50.0f);
}

TEST(Options, Gpt2ScalesScoresByTheLayerToo) {
  const ModelSpec both = built("GPT2LMHeadModel", {{"scale_attn_by_inverse_layer_idx", true}});
  EXPECT_FLOAT_EQ(mixer(both, 0).scale, 0.25f);
  EXPECT_FLOAT_EQ(mixer(both, 3).scale, 0.0625f);
  EXPECT_FLOAT_EQ(mixer(built("GPT2LMHeadModel", {{"scale_attn_weights", false}}), 1).scale, 1.0f);
}

TEST(Options, OptMayNormAfterTheSums) {
  const ModelSpec after = built("OPTForCausalLM", {{"do_layer_norm_before", false}});
  EXPECT_EQ(after.layers.at(0).wiring, Wiring::SumNorm);
  EXPECT_FALSE(after.output_norm);
  EXPECT_TRUE(built("OPTForCausalLM", {}).output_norm);
}

TEST(Options, BloomMayGoOnFromItsNorms) {
  const Keys keys{{"apply_residual_connection_post_layernorm", true}};
  EXPECT_EQ(built("BloomForCausalLM", keys).layers.at(0).wiring, Wiring::NormedStream);
  EXPECT_EQ(built("BloomForCausalLM", {}).layers.at(0).wiring, Wiring::PreNorm);
}

TEST(Options, OptMayHaveNarrowEmbeddings) {
  EXPECT_EQ(built("OPTForCausalLM", {}).embedding_dim, 0);
  const ModelSpec narrow = built("OPTForCausalLM", {{"word_embed_proj_dim", 8}});
  EXPECT_EQ(narrow.embedding_dim, 8);
  EXPECT_LT(parameter_count(narrow), parameter_count(built("OPTForCausalLM", {})));
  EXPECT_NE(describe(narrow).find("projection"), std::string::npos);
}

TEST(Options, LayersThatSeeEverythingHaveNoPositionsWhereNoneSlides) {
  const json::array full{"full_attention", "full_attention", "full_attention", "full_attention"};
  for (std::string_view name : {"Cohere2ForCausalLM", "Exaone4ForCausalLM"})
    EXPECT_EQ(mixer(built(name, {{"sliding_window", 16}, {"layer_types", full}}), 0).rope, -1) << name;
  EXPECT_EQ(mixer(built("Exaone4ForCausalLM", {{"sliding_window", nullptr}}), 0).rope, 0);
}

TEST(Options, MixturesOfQwen3SlideInAllLayersOrInNone) {
  const json::object base = with(small_config("Qwen3MoeForCausalLM"),
                                 {{"num_experts", 4}, {"num_experts_per_tok", 2}, {"sliding_window", 16}});
  for (bool slides : {false, true}) {
    const Result<ModelSpec> spec = spec_of(with(base, {{"use_sliding_window", slides}}));
    ASSERT_TRUE(spec.ok()) << problem(spec);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(mixer(*spec, i).window, slides ? 16 : 0);
  }
}

TEST(Options, Qwen2SlidesFromALayerOnWhereNoTypesAreListed) {
  const ModelSpec spec = built(
      "Qwen2ForCausalLM", {{"use_sliding_window", true}, {"sliding_window", 16}, {"max_window_layers", 3}});
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(mixer(spec, i).window, i < 3 ? 0 : 16) << i;
  EXPECT_EQ(mixer(built("Qwen2ForCausalLM", {{"sliding_window", 16}}), 3).window, 0);
}

TEST(Options, WindowsOfOlmo3TurnAtTheCommonThetaUnstretched) {
  const json::object rope{{"rope_type", "linear"}, {"rope_theta", 256.0}, {"factor", 4.0}};
  const ModelSpec spec = built("Olmo3ForCausalLM", {{"rope_parameters", rope}, {"sliding_window", 16}});
  ASSERT_EQ(spec.ropes.size(), 2u);
  EXPECT_FLOAT_EQ(spec.ropes[0].inverse_frequency.at(1), 0.125f);
  EXPECT_FLOAT_EQ(spec.ropes[1].inverse_frequency.at(1), 0.5f);
}

TEST(Options, DeepSeek2ChoosesFromGroupsOnlyWhereToldTo) {
  const json::object base = with(small_config("DeepseekV2ForCausalLM"), {{"n_routed_experts", 8},
                                                                         {"num_experts_per_tok", 2},
                                                                         {"n_group", 4},
                                                                         {"topk_group", 2},
                                                                         {"kv_lora_rank", 16},
                                                                         {"qk_nope_head_dim", 8},
                                                                         {"v_head_dim", 8},
                                                                         {"qk_rope_head_dim", 8},
                                                                         {"norm_topk_prob", true}});
  for (const auto& [method, groups] : {std::pair("greedy", 1), std::pair("group_limited_greedy", 4)}) {
    const Result<ModelSpec> spec = spec_of(with(base, {{"topk_method", method}}));
    ASSERT_TRUE(spec.ok()) << problem(spec);
    const auto& ffn = std::get<MoeFfn>(spec->layers.at(0).ffn);
    EXPECT_EQ(ffn.routing.groups, groups);
    EXPECT_FALSE(ffn.routing.normalize);
  }
}

TEST(Options, AFlagPerLayerIsNoPatternThoughAllAreTheSame) {
  formats::GgufMetadata metadata = small_metadata("exaone4");
  metadata.set("exaone4.attention.sliding_window", int64_t{16});
  metadata.set("exaone4.attention.sliding_window_pattern",
               formats::GgufArray(std::vector<int64_t>{1, 1, 1, 1}));
  const Result<ModelSpec> spec = spec_of(metadata);
  ASSERT_TRUE(spec.ok()) << problem(spec);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(mixer(*spec, i).window, 16) << i;
}

TEST(Options, GgufFilesOfLagunaSeeEverythingInEveryFourthLayer) {
  formats::GgufMetadata metadata = small_metadata("laguna");
  metadata.set("laguna.attention.head_count", formats::GgufArray(std::vector<int64_t>{4, 2, 2, 2}));
  metadata.set("laguna.attention.sliding_window", int64_t{16});
  metadata.set("laguna.rope.dimension_count", int64_t{8});
  metadata.set("laguna.rope.dimension_count_swa", int64_t{16});
  metadata.set("laguna.rope.freq_base_swa", 5e3);
  metadata.set("laguna.expert_count", int64_t{4});
  metadata.set("laguna.expert_used_count", int64_t{2});
  metadata.set("laguna.expert_feed_forward_length", int64_t{32});
  metadata.set("laguna.expert_weights_scale", 2.5);
  const Result<ModelSpec> spec = spec_of(metadata);
  ASSERT_TRUE(spec.ok()) << problem(spec);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(mixer(*spec, i).window, i == 0 ? 0 : 16) << i;
    EXPECT_EQ(mixer(*spec, i).rope, i == 0 ? 0 : 1) << i;
    EXPECT_EQ(mixer(*spec, i).heads, i == 0 ? 4 : 2) << i;
  }
  EXPECT_EQ(spec->ropes.at(0).inverse_frequency.size(), 4u);
  EXPECT_EQ(spec->ropes.at(1).inverse_frequency.size(), 8u);
  EXPECT_EQ(spec->ropes.at(1).note, "theta 5000");
  EXPECT_EQ(std::get<MoeFfn>(spec->layers.at(1).ffn).routing.scale, 2.5f);
}

TEST(Options, NemotronMayHaveExpertsBehindALatent) {
  const auto nemotron = [](json::value latent) {
    return built("NemotronHForCausalLM", {{"hybrid_override_pattern", "ME*-"},
                                          {"mamba_num_heads", 8},
                                          {"mamba_head_dim", 16},
                                          {"ssm_state_size", 16},
                                          {"n_groups", 2},
                                          {"n_routed_experts", 8},
                                          {"num_experts_per_tok", 2},
                                          {"moe_intermediate_size", 32},
                                          {"moe_shared_expert_intermediate_size", 48},
                                          {"moe_latent_size", latent}});
  };
  const ModelSpec plain = nemotron(nullptr), latent = nemotron(16);
  EXPECT_EQ(std::get<MoeFfn>(plain.layers.at(1).ffn).latent, 0);
  EXPECT_EQ(std::get<MoeFfn>(latent.layers.at(1).ffn).latent, 16);
  const int64_t narrower = 2 * 32 * (64 - 16), projections = 2 * 64 * 16;
  EXPECT_EQ(parameter_count(plain) - parameter_count(latent), 8 * narrower - projections);
  EXPECT_EQ(active_parameter_count(plain) - active_parameter_count(latent), 2 * narrower - projections);
  EXPECT_NE(describe(latent).find("through 16 numbers"), std::string::npos);
}

TEST(Options, MuseGlimmerTurnsLayersThatHaveATheta) {
  const json::array kinds{"sliding_attention", "full_attention", "sliding_attention", "full_attention"};
  const json::object rope{{"rope_type", "default"}, {"rope_theta", 5e5}};
  const auto muse = [&](const json::value& thetas) {
    return with(small_config("MuseGlimmerForConditionalGeneration"), {{"sliding_window", 16},
                                                                      {"layer_types", kinds},
                                                                      {"rope_parameters", rope},
                                                                      {"qk_scale_factor", 2.0},
                                                                      {"layer_rope_theta", thetas}});
  };
  const Result<ModelSpec> spec = spec_of(muse(json::array{5e5, 5e5, 0, 0}));
  ASSERT_TRUE(spec.ok()) << problem(spec);
  EXPECT_EQ(mixer(*spec, 1).rope, 0);
  EXPECT_EQ(mixer(*spec, 2).rope, -1);
  EXPECT_EQ(mixer(*spec, 2).window, 16);
  EXPECT_FLOAT_EQ(mixer(*spec, 0).scale, 0.5f);
  EXPECT_FLOAT_EQ(spec->post_norm_eps, 1e-8f);
  const Result<ModelSpec> unsaid = spec_of(muse(nullptr));
  ASSERT_TRUE(unsaid.ok()) << problem(unsaid);
  EXPECT_EQ(mixer(*unsaid, 2).rope, 0);
  EXPECT_EQ(mixer(*unsaid, 3).rope, -1);
  for (const json::array& thetas : {json::array{5e5, 5e5, 1e4, 0}, json::array{5e5}})
    EXPECT_THAT(problem(spec_of(muse(thetas))), testing::HasSubstr("layer_rope_theta"));
}

TEST(Options, NullIsNotWhatIsLeftOut) {
  EXPECT_EQ(built("NanoChatForCausalLM", {{"final_logit_softcapping", nullptr}}).logit_softcap, 0.0f);
  EXPECT_EQ(built("NanoChatForCausalLM", {}).logit_softcap, 15.0f);
}

TEST(Options, OnlyModelsThatSeeEverythingByOneRopeTakePositionsWithGaps) {
  const ModelSpec plain = built("LlamaForCausalLM", {});
  EXPECT_TRUE(takes_positions(plain));
  const auto changed = [&](auto change) {
    ModelSpec spec = plain;
    change(spec, std::get<Attention>(spec.layers.back().mixer));
    return takes_positions(spec);
  };
  EXPECT_FALSE(changed([](ModelSpec& spec, Attention&) { spec.positions = Positions::Learned; }));
  EXPECT_FALSE(changed([](ModelSpec&, Attention& mixer) { mixer.window = 128; }));
  EXPECT_FALSE(changed([](ModelSpec&, Attention& mixer) { mixer.alibi = 8; }));
  EXPECT_FALSE(changed([](ModelSpec&, Attention& mixer) { mixer.temperature.slope = 0.1F; }));
  EXPECT_FALSE(changed([](ModelSpec& spec, Attention&) { spec.layers.front().mixer = ShortConv(); }));
  EXPECT_TRUE(changed([](ModelSpec&, Attention& mixer) { mixer.rope = -1; }));
}

}  // namespace sluice::models

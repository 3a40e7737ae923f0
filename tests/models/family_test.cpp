#include "models/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/models/specs.h"

namespace sluice::models {

using testing::HasSubstr;

TEST(Family, BuildsTheLlamaShape) {
  const Result<ModelSpec> spec = spec_of(small_config());
  ASSERT_TRUE(spec.ok()) << problem(spec);
  ASSERT_EQ(spec->layers.size(), 4u);
  const auto& mixer = std::get<Attention>(spec->layers[0].mixer);
  EXPECT_EQ(mixer.heads, 4);
  EXPECT_EQ(mixer.kv_heads, 2);
  EXPECT_EQ(mixer.head_dim, 16);
  EXPECT_FLOAT_EQ(mixer.scale, 0.25f);
  EXPECT_EQ(std::get<DenseFfn>(spec->layers[0].ffn).inner, 96);
  EXPECT_EQ(spec->ropes.at(0).style, RopeStyle::NeoX);
}

TEST(Family, GgufFilesOfLlamaRotateNeighbours) {
  const Result<ModelSpec> spec = spec_of(small_metadata("llama"));
  ASSERT_TRUE(spec.ok()) << problem(spec);
  EXPECT_EQ(spec->ropes.at(0).style, RopeStyle::GptJ);
}

TEST(Family, PutsWindowsWhereTheLayerTypesSay) {
  const json::array types{"sliding_attention", "full_attention", "sliding_attention", "full_attention"};
  const auto spec =
      spec_of(with(small_config("Gemma2ForCausalLM"), {{"sliding_window", 16}, {"layer_types", types}}));
  ASSERT_TRUE(spec.ok()) << problem(spec);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(std::get<Attention>(spec->layers[i].mixer).window, i % 2 == 0 ? 16 : 0) << i;
}

TEST(Family, NamesTheNearestOfWhatItKnows) {
  EXPECT_THAT(problem(spec_of(small_config("LlammaForCausalLM"))),
              HasSubstr("the nearest is 'LlamaForCausalLM'"));
  EXPECT_THAT(problem(spec_of(small_config("Nothing"))), HasSubstr("architecture 'Nothing' is not among"));
}

TEST(Family, ListsWhatItKnowsBesideWhatItDoesNot) {
  const std::string error = problem(spec_of(small_metadata("mamba")));
  EXPECT_THAT(error, HasSubstr("architecture 'mamba' is not among"));
  EXPECT_THAT(error, HasSubstr("llama, "));
  EXPECT_THAT(error, HasSubstr("qwen3moe"));
}

TEST(Family, NamesKeysAsTheFileDoes) {
  formats::GgufMetadata metadata = small_metadata("llama");
  metadata.set("llama.embedding_length", int64_t{0});
  EXPECT_THAT(problem(spec_of(metadata)), HasSubstr("'llama.embedding_length' is 0, must be 1 to"));
  metadata.set("llama.embedding_length", std::string_view("wide"));
  EXPECT_THAT(problem(spec_of(metadata)), HasSubstr("llama.embedding_length"));
}

TEST(Family, RefusesHeadsTooWideToTurn) {
  for (std::string_view name : {"gemma3", "gemma4", "llama"}) {
    formats::GgufMetadata metadata = small_metadata(name);
    metadata.set(std::string(name) + ".attention.key_length", int64_t{1} << 30);
    EXPECT_THAT(problem(spec_of(metadata)), HasSubstr("'head_dim' is 1073741824")) << name;
  }
}

TEST(Family, TakesAModelThatSeesForItsDecoder) {
  json::object text = small_config();
  text.erase("architectures");
  text["model_type"] = "qwen3_moe";
  text["num_experts"] = 4;
  text["num_experts_per_tok"] = 2;
  const auto spec = spec_of(json::object{
      {"architectures", json::array{"SomethingNewForConditionalGeneration"}}, {"text_config", text}});
  ASSERT_TRUE(spec.ok()) << problem(spec);
  EXPECT_EQ(spec->family, "Qwen3MoeForCausalLM");
  EXPECT_EQ(std::get<Attention>(spec->layers[0].mixer).qk_norm, QkNorm::PerHead);
}

TEST(Family, Llama4AlternatesChunksWithLayersWithoutPositions) {
  const auto spec = spec_of(with(small_config("Llama4ForCausalLM"), {{"num_local_experts", 4},
                                                                     {"num_experts_per_tok", 1},
                                                                     {"interleave_moe_layer_step", 2},
                                                                     {"intermediate_size_mlp", 128},
                                                                     {"attention_chunk_size", 32},
                                                                     {"attn_temperature_tuning", 4}}));
  ASSERT_TRUE(spec.ok()) << problem(spec);
  for (size_t i = 0; i < 4; ++i) {
    const auto& mixer = std::get<Attention>(spec->layers[i].mixer);
    EXPECT_EQ(mixer.rope, i == 3 ? -1 : 0) << i;
    EXPECT_EQ(mixer.chunked, i != 3) << i;
    EXPECT_EQ(mixer.window, i == 3 ? 0 : 32) << i;
    EXPECT_EQ(mixer.temperature.slope > 0.0f, i == 3) << i;
    EXPECT_EQ(std::holds_alternative<MoeFfn>(spec->layers[i].ffn), i % 2 == 1) << i;
  }
  EXPECT_EQ(std::get<DenseFfn>(spec->layers[0].ffn).inner, 128);
  EXPECT_TRUE(std::get<MoeFfn>(spec->layers[1].ffn).weigh_inputs);
}

TEST(Family, GgufFilesOfApertusKeepXieluInTheirKeys) {
  formats::GgufMetadata metadata = small_metadata("apertus");
  metadata.set("xielu.alpha_p", formats::GgufArray(std::vector<double>{0.1, 0.2, 0.3, 0.4}));
  metadata.set("xielu.alpha_n", formats::GgufArray(std::vector<double>{0.5, 0.5, 0.5, 0.5}));
  EXPECT_THAT(problem(spec_of(metadata)), HasSubstr("'xielu.beta' is missing"));
  metadata.set("xielu.beta", formats::GgufArray(std::vector<double>{0.5, 0.5, 0.5, 0.5}));
  const auto spec = spec_of(metadata);
  ASSERT_TRUE(spec.ok()) << problem(spec);
  const auto& ffn = std::get<XieluFfn>(spec->layers[2].ffn);
  EXPECT_FLOAT_EQ(ffn.parameters.alpha_p, 0.3f);
  EXPECT_FLOAT_EQ(ffn.parameters.alpha_n, 0.5f);
}

TEST(Family, GivesLayersOfOneThetaOneRope) {
  const json::array thetas{10000, 0, 500000, 10000};
  const auto spec = spec_of(with(small_config("GraniteSWAForCausalLM"), {{"layer_rope_theta", thetas}}));
  ASSERT_TRUE(spec.ok()) << problem(spec);
  ASSERT_EQ(spec->ropes.size(), 2u);
  const int expected[] = {0, -1, 1, 0};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(std::get<Attention>(spec->layers[i].mixer).rope, expected[i]) << i;
  EXPECT_GT(spec->ropes[0].inverse_frequency[1], spec->ropes[1].inverse_frequency[1]);
}

TEST(Family, EveryNameBelongsToOneFamily) {
  std::set<std::string_view> hugging_face, gguf;
  for (const Architecture* architecture : architectures()) {
    for (std::string_view name : architecture->hugging_face)
      EXPECT_TRUE(hugging_face.insert(name).second) << name;
    for (std::string_view name : architecture->gguf) EXPECT_TRUE(gguf.insert(name).second) << name;
  }
}

// What a person may put into a config, and a part of what must be said about it.
struct Absurdity {
  std::string_view key;
  json::value value;
  std::string_view says;
};

TEST(Family, RefusesAbsurdHyperparametersOfEveryFamily) {
  const Absurdity absurdities[] = {
      {"num_attention_heads", 0, "'num_attention_heads' is 0, must be 1"},
      {"num_attention_heads", -4, "'num_attention_heads' is -4"},
      {"num_attention_heads", "four", "num_attention_heads"},
      {"num_hidden_layers", int64_t{1} << 31, "'num_hidden_layers' is 2147483648"},
      {"num_hidden_layers", 2000, "'num_hidden_layers' is 2000, limit 1024"},
      {"hidden_size", 0, "'hidden_size' is 0"},
      {"hidden_size", 1e300, "hidden_size"},
      {"vocab_size", -1, "'vocab_size' is -1"},
  };
  for (const Architecture* architecture : architectures())
    for (std::string_view name : architecture->hugging_face)
      for (const Absurdity& absurdity : absurdities) {
        const auto spec = spec_of(with(small_config(name), {{absurdity.key, absurdity.value}}));
        EXPECT_THAT(problem(spec), HasSubstr(std::string(absurdity.says))) << name;
      }
}

TEST(Family, RefusesWhatDoesNotFitTogether) {
  EXPECT_THAT(problem(spec_of(with(small_config(), {{"num_key_value_heads", 3}}))),
              HasSubstr("4 attention heads cannot share 3 key-value heads"));
  EXPECT_THAT(problem(spec_of(with(small_config(), {{"head_dim", 15}}))), HasSubstr("'head_dim' is 15"));
  EXPECT_THAT(problem(spec_of(with(small_config(), {{"hidden_act", "sine"}}))), HasSubstr("'sine'"));
  EXPECT_THAT(problem(spec_of(with(small_config("MixtralForCausalLM"),
                                   {{"num_local_experts", 2}, {"num_experts_per_tok", 4}}))),
              HasSubstr("4 experts per token of 2 experts"));
  EXPECT_THAT(problem(spec_of(with(small_config("Dots1ForCausalLM"),
                                   {{"n_routed_experts", 6}, {"num_experts_per_tok", 2}, {"n_group", 4}}))),
              HasSubstr("equal groups"));
  EXPECT_THAT(problem(spec_of(with(small_config("Gemma2ForCausalLM"),
                                   {{"sliding_window", 8}, {"layer_types", json::array{"full_attention"}}}))),
              HasSubstr("'layer_types' has 1 entries for 4 layers"));
}

// Keys that every published model has the same, and that kernels or the loader could not follow elsewhere.
TEST(Family, RefusesWhatItsPartsDoNotCompute) {
  EXPECT_THAT(problem(spec_of(with(small_config("Qwen3NextForCausalLM"), {{"linear_num_key_heads", 2},
                                                                          {"linear_num_value_heads", 2},
                                                                          {"linear_key_head_dim", 8},
                                                                          {"linear_value_head_dim", 8},
                                                                          {"hidden_act", "gelu"}}))),
              HasSubstr("'hidden_act' is 'gelu', must be 'silu'"));
  EXPECT_THAT(problem(spec_of(with(small_config("FalconH1ForCausalLM"),
                                   {{"mamba_n_heads", 4}, {"mamba_d_state", 8}, {"mlp_bias", true}}))),
              HasSubstr("'mlp_bias' is true, which is not supported"));
  EXPECT_THAT(
      problem(spec_of(with(small_config("Gemma3ForCausalLM"), {{"use_bidirectional_attention", true}}))),
      HasSubstr("'use_bidirectional_attention' is true"));
  EXPECT_THAT(problem(spec_of(with(small_config("PhimoeForCausalLM"),
                                   {{"num_local_experts", 4}, {"num_experts_per_tok", 3}}))),
              HasSubstr("'num_experts_per_tok' is 3, must be 2"));
}

TEST(Family, RefusesAttentionBothWaysButForPictures) {
  const auto gemma = [](json::value seen) {
    return problem(
        spec_of(with(small_config("Gemma4ForCausalLM"), {{"use_bidirectional_attention", std::move(seen)}})));
  };
  EXPECT_EQ(gemma("vision"), "");
  EXPECT_EQ(gemma(false), "");
  EXPECT_THAT(gemma("all"), HasSubstr("'use_bidirectional_attention' is 'all', must be 'vision'"));
}

// What transformers' classes take where configs say nothing.
TEST(Family, TakesTheDefaultsOfItsClass) {
  const json::object small =
      with(small_config("LagunaForCausalLM"),
           {{"num_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 16}});
  const auto laguna = spec_of(small);
  ASSERT_TRUE(laguna.ok()) << problem(laguna);
  EXPECT_EQ(laguna->ropes.at(0).inverse_frequency.size(), 4u);  // half of a head of 16
  EXPECT_EQ(laguna->ropes.at(1).inverse_frequency.size(), 8u);
  const auto kimi = spec_of(with(small_config("KimiLinearForCausalLM"), {{"num_hidden_layers", 5},
                                                                         {"kv_lora_rank", 16},
                                                                         {"qk_rope_head_dim", 8},
                                                                         {"qk_nope_head_dim", 8},
                                                                         {"v_head_dim", 8},
                                                                         {"linear_num_heads", 4},
                                                                         {"linear_head_dim", 8}}));
  ASSERT_TRUE(kimi.ok()) << problem(kimi);
  for (size_t i = 0; i < 5; ++i)
    EXPECT_EQ(std::holds_alternative<LatentAttention>(kimi->layers.at(i).mixer), i == 4) << i;
}

TEST(Family, OlmoHybridHasNoPositionsWhereThetaIsNull) {
  const auto ropes = [](std::initializer_list<std::pair<std::string_view, json::value>> keys) {
    const auto spec = spec_of(with(small_config("OlmoHybridForCausalLM"), keys));
    return spec.ok() ? static_cast<int>(spec->ropes.size()) : -1;
  };
  EXPECT_EQ(ropes({}), 1);
  EXPECT_EQ(ropes({{"rope_parameters", nullptr}}), 1);
  EXPECT_EQ(ropes({{"rope_parameters", json::object{{"rope_theta", nullptr}}}}), 0);
  EXPECT_EQ(ropes({{"rope_theta", nullptr}}), 0);
}

TEST(Family, Zamba2TurnsWholeHeads) {
  const auto spec = spec_of(with(small_config("Zamba2ForCausalLM"), {{"hybrid_layer_ids", json::array{1}},
                                                                     {"n_mamba_heads", 4},
                                                                     {"mamba_d_state", 8},
                                                                     {"use_mem_rope", true},
                                                                     {"partial_rotary_factor", 0.5}}));
  ASSERT_TRUE(spec.ok()) << problem(spec);
  EXPECT_EQ(spec->ropes.at(0).inverse_frequency.size(), 16u);  // heads of 2 * 64 / 4
}

TEST(Family, DeepseekFilesSayWhereTheirWeightsAreNormed) {
  formats::GgufMetadata metadata = small_metadata("deepseek2");
  const auto normed = [&] {
    const auto spec = spec_of(metadata);
    EXPECT_TRUE(spec.ok()) << problem(spec);
    return spec.ok() && std::get<MoeFfn>(spec->layers.at(1).ffn).routing.normalize;
  };
  for (const auto& [key, value] :
       {std::pair{"attention.kv_lora_rank", 16}, std::pair{"rope.dimension_count", 8},
        std::pair{"attention.key_length", 16}, std::pair{"attention.value_length", 8},
        std::pair{"expert_count", 4}, std::pair{"expert_used_count", 2},
        std::pair{"expert_feed_forward_length", 16}, std::pair{"expert_gating_func", 2}})
    metadata.set(std::string("deepseek2.") + key, int64_t{value});
  EXPECT_FALSE(normed());
  metadata.set("deepseek2.expert_weights_norm", true);
  EXPECT_TRUE(normed());
}

TEST(Family, RefusesGgufFilesOfBamba) {
  formats::GgufMetadata metadata = small_metadata("granitehybrid");
  metadata.set("granitehybrid.rope.scaling.finetuned", true);
  EXPECT_THAT(problem(spec_of(metadata)),
              HasSubstr("'granitehybrid.rope.scaling.finetuned' is true, as in files of Bamba"));
}

// Its steps have no limit but time_step_min.
TEST(Family, NemotronHLimitsStepsFromBelow) {
  const auto nemotron =
      spec_of(with(small_config("NemotronHForCausalLM"), {{"hybrid_override_pattern", "M*"},
                                                          {"mamba_num_heads", 4},
                                                          {"mamba_head_dim", 8},
                                                          {"n_groups", 2},
                                                          {"time_step_min", 0.25},
                                                          {"time_step_limit", json::array{0.5, 0.75}}}));
  ASSERT_TRUE(nemotron.ok()) << problem(nemotron);
  EXPECT_EQ(std::get<StateSpace>(nemotron->layers.at(0).mixer).least_step, 0.25f);
  EXPECT_GT(std::get<StateSpace>(nemotron->layers.at(0).mixer).largest_step, 1e30f);
}

TEST(Family, GatesOfLayerInputsHaveTheActivationOfTheModel) {
  const auto spec = spec_of(
      with(small_config("Gemma4ForCausalLM"), {{"hidden_activation", "silu"}, {"hidden_act", "relu"}}));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->per_layer_gate, Activation::Silu);
  EXPECT_EQ(std::get<DenseFfn>(spec->layers[0].ffn).activation, Activation::Silu);
}

}  // namespace sluice::models

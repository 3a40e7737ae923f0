// What the files of models/arch are written with: the common decoder shape, and the parts that families
// change.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "models/loading/config/config.h"
#include "models/spec.h"

namespace sluice::models {

// One family of models. `build` reads the config (through its error-keeping getters) and returns the spec.
struct Architecture {
  std::span<const std::string_view> hugging_face;  // config.json "architectures"
  std::span<const std::string_view> gguf;          // "general.architecture"
  ModelSpec (*build)(Config&);
};

// All families, from the files of models/arch.
std::span<const Architecture* const> architectures();

// The spec for a config, or an error that lists what is known. A model with a vision tower is of the family
// of its decoder.
Result<ModelSpec> build_spec(Config& config);

// The Llama shape: pre-norm RMS layers of grouped-query attention with rope 0 everywhere and a gated
// feed-forward. `gguf_style` is how GGUF files of the family store the rotated pairs; Hugging Face files use
// Halves unless a family says otherwise.
ModelSpec decoder_spec(Config& config, RopeStyle gguf_style = RopeStyle::NeoX);

Attention& attention(LayerSpec& layer);  // REQUIRES: the mixer is an Attention

// Records a problem where heads do not share key-value heads evenly, or their width cannot be.
void check_heads(Config& config, const Attention& mixer);

// DeepSeek's compressed keys and values, with rope 0.
LatentAttention latent_attention(Config& config, int heads);

// Gives the layers, whose mixers are latent attention, indexers that choose index_topk positions: each its own, or that of
// the layer before where indexer_types, index_topk_pattern or index_topk_freq say so. A file without their tensors is
// limited to as many positions. `style`: where indexer_rope_interleave does not say.
void use_indexers(Config& config, ModelSpec& spec, RopeStyle style);

// Gives the layers that layer_types calls minimax_m3_sparse, or for which a GGUF file has their tensors, indexers that choose index_topk_blocks blocks of index_block_size
// positions.
void use_block_indexers(Config& config, ModelSpec& spec);

struct RopeOptions {
  int dims = 0;  // rotated elements per head
  float default_theta = 10000.0f;
  float theta = 0.0f;                // instead of the config's; 0: that
  std::string_view layer_type = "";  // picks an entry of a rope_parameters object that has one per layer type
  RopeStyle style = RopeStyle::NeoX;
};
Rope make_rope(Config& config, const RopeOptions& options);

// Positions that a model of this `context` was made for, with the stretch of its rope where that is not counted in it.
int stretched_context(Config& config, int context);

// The rope of the window layers of families that give them their own: rope_parameters.sliding_attention, or
// plain frequencies from rope_local_base_freq (10000 where missing).
Rope make_local_rope(Config& config, int dims);

// The factor on the logits of models that raise the softmax temperature with yarn (mscale_all_dim), squared.
float yarn_logit_factor(Config& config);

// llama_4_scaling_beta and the context before stretching, as Mistral 3 and 4 have them.
AttentionTemperature query_temperature(Config& config);

// Sliding windows where "layer_types" says so, or GGUF's sliding_window_pattern (a flag per layer, or a
// `pattern` of the file's own). Without them one layer in every `pattern` is full (the last of each group; with
// 1, all), or, with pattern 0, only the first max_window_layers.
void use_windows(Config& config, ModelSpec& spec, int pattern);

Activation activation(Config& config, std::string_view fallback = "silu",
                      std::string_view key = "hidden_act");

// Gemma's configs name their activation hidden_activation, and may carry a hidden_act that nothing reads. Records a problem
// where use_bidirectional_attention says more than that pictures see themselves.
void use_gemma_attention_and_activation(Config& config);

// Records a problem where the config has one of these flags set, or this key with another text.
void refuse_flags(Config& config, std::initializer_list<std::string_view> flags);
void expect_text(Config& config, std::string_view key, std::string_view known);

// The Mixtral shape: softmax over the chosen experts, from num_local_experts, num_experts_per_tok and
// moe_intermediate_size (or intermediate_size).
MoeFfn moe_ffn(Config& config);

// The DeepSeek 3 shape: sigmoid scores, a bias on the choice, the best of n_group groups first, weights
// normalised where norm_topk_prob says so (as it does where missing), and shared experts as one.
MoeFfn grouped_moe_ffn(Config& config);

// Records a problem where swiglu_alpha and swiglu_limit are not those of Activation::SwigluOai.
void check_swiglu(Config& config);

// Gives every layer that mlp_layer_types calls sparse, or from first_k_dense_replace on, this feed-forward.
void use_moe(Config& config, ModelSpec& spec, const MoeFfn& ffn);

// Gives every layer that mlp_layer_types calls sparse this feed-forward; without that list every
// decoder_sparse_step-th, but for those that mlp_only_layers lists.
void use_sparse_moe(Config& config, ModelSpec& spec, const MoeFfn& ffn);

// Gives every layer, beside its dense feed-forward, experts by softmax, normalised, each with a scale of its own.
// REQUIRES: the layers' feed-forwards are dense.
void use_experts_beside(Config& config, ModelSpec& spec);

// Gives every layer a feed-forward without a gate, of the width that `key` gives (GGUF: intermediate_size) or
// else of four times the model's.
void use_plain_ffn(Config& config, ModelSpec& spec, std::string_view fallback_activation,
                   std::string_view key = "intermediate_size");

// The number that so large a share of a normal distribution lies below; -infinity for none of it.
float normal_quantile(double share);

// For families without grouped queries, whatever else their configs carry.
void use_kv_per_head(ModelSpec& spec);

// No rotations anywhere, for families that tell positions otherwise.
void drop_all_ropes(ModelSpec& spec);

// No positions in the layers without a window.
void drop_rope_of_full_layers(ModelSpec& spec);

// No positions where no_rope_layers (1: has rope) says so; without that list, in every layer whose number is a
// multiple of no_rope_layer_interval (4 where missing).
void drop_listed_ropes(Config& config, ModelSpec& spec);

// Granite's factors: embedding_multiplier, residual_multiplier, and attention_multiplier for the scale.
void use_multipliers(Config& config, ModelSpec& spec);

// A theta for each layer, where 0 means no positions; layers of one theta share a rope. At most kMaxRopes.
void use_layer_thetas(Config& config, ModelSpec& spec, const std::vector<double>& thetas);

// Turns the layers with a window by make_local_rope.
void use_local_rope(Config& config, ModelSpec& spec);

// The ropes of a GGUF file that has one for the layers that see everything and another for those with a window: how many
// numbers of a head each turns.
void use_ropes_of_file(Config& config, ModelSpec& spec, int full_dims, int window_dims);

// A rope for the full layers and one for those with a window, each with its own share of the head's width: the entries of
// rope_parameters, or else these, with the parts for the share that is not said.
struct RopesByKind {
  float full_theta = 10000.0f;
  float window_theta = 10000.0f;
  float full_part = 1.0f;
  float window_part = 1.0f;
};
void use_ropes_by_kind(Config& config, ModelSpec& spec, const RopesByKind& otherwise);

void use_wiring(ModelSpec& spec, Wiring wiring);

// Norms before and after mixer and feed-forward, under Gemma's names.
void use_sandwich(ModelSpec& spec);

// The last num_kv_shared_layers layers read the keys and values of the last layer before them that has the same
// window, and have feed-forwards of twice the width where use_double_wide_mlp says so.
void share_last_kv(Config& config, ModelSpec& spec);

// -- layers that keep a state

// What each layer is: layer_types, or another name of it. In GGUF files the tensors tell: a layer is "full_attention",
// `recurrent`, "moe" or "mlp"; without them one without key-value heads is `recurrent`. The count of those heads becomes the
// config's.
std::vector<std::string> layer_kinds(Config& config, std::string_view recurrent);

// Linear attention as Qwen's configs (linear_num_key_heads, ...) or GGUF's ssm keys have it.
GatedDelta gated_delta(Config& config);

// Mamba 2 as Bamba's configs (mamba_n_heads, ...), or GGUF's ssm keys have it, in a model of this width.
StateSpace state_space(Config& config, int dim);
// The same where time_step_min (0.001, as in GGUF files) alone limits the steps, whatever time_step_limit says.
StateSpace state_space_of_least_steps(Config& config, int dim);

// Gives the layers that layers_block_type (or hybrid_layer_ids) calls hybrid this mixer, with num_mem_blocks blocks in turn (but for
// those that the file has of their own) under Zamba's names, and the others its state space alone. REQUIRES: a Hugging Face config.
void use_shared_blocks(Config& config, ModelSpec& spec, StateSpaceAfterBlock mixer);

// Records a problem where a convolution cannot have so many taps.
void check_taps(Config& config, int taps);
// The same for one that an activation follows: silu, by mamba_hidden_act or else hidden_act.
void check_convolution(Config& config, int taps);

}  // namespace sluice::models

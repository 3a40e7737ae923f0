// What the files of models/arch are written with: the common decoder shape, and the parts that families
// change.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "models/config.h"
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

// The spec for a config, or an error that lists what is known.
Result<ModelSpec> build_spec(Config& config);

// The Llama shape: pre-norm RMS layers of grouped-query attention with rope 0 everywhere and a gated
// feed-forward. `gguf_style` is how GGUF files of the family store the rotated pairs; Hugging Face files use
// Halves unless a family says otherwise.
ModelSpec decoder_spec(Config& config, RopeStyle gguf_style = RopeStyle::Halves);

Attention& attention(LayerSpec& layer);  // REQUIRES: the mixer is an Attention

struct RopeOptions {
  int dims = 0;  // rotated elements per head
  float default_theta = 10000.0f;
  std::string_view layer_type = "";  // picks an entry of a rope_parameters object that has one per layer type
  RopeStyle style = RopeStyle::Halves;
};
Rope make_rope(Config& config, const RopeOptions& options);

// The rope of the window layers of families that give them their own: rope_parameters.sliding_attention, or
// plain frequencies from rope_local_base_freq (10000 where missing).
Rope make_local_rope(Config& config, int dims);

// The factor on the logits of models that raise the softmax temperature with yarn (mscale_all_dim), squared.
float yarn_logit_factor(Config& config);

// Sliding windows where "layer_types" says so; GGUF files and older configs without that list have one full
// layer in every `pattern` (the last of each group), or, with pattern 0, windows everywhere.
void use_windows(Config& config, ModelSpec& spec, int pattern);

Activation activation(Config& config, std::string_view fallback = "silu");

// The Mixtral shape: softmax over the chosen experts, from num_local_experts, num_experts_per_tok and
// moe_intermediate_size (or intermediate_size).
MoeFfn moe_ffn(Config& config);

}  // namespace sluice::models

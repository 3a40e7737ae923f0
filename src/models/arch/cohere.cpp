// Command R and R7B: mixer and feed-forward side by side after one layer norm without bias, rotation of
// neighbouring pairs, scaled logits; R7B has windows, and no positions in its full layers.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kCohereHuggingFace[] = {"CohereForCausalLM", "Cohere2ForCausalLM"};
constexpr std::string_view kCohereGguf[] = {"command-r", "cohere2"};

ModelSpec build_cohere(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::GptJ);
  spec.ropes[0].style = RopeStyle::GptJ;
  spec.norm = NormKind::Layer;
  spec.tied_output = c.flag_or("tie_word_embeddings", true);
  spec.logit_scale = c.number_or("logit_scale", 0.0625f);
  use_wiring(spec, Wiring::Parallel);
  if (c.architecture() == kCohereHuggingFace[1] || c.architecture() == kCohereGguf[1]) {
    use_windows(c, spec, c.is_gguf() ? 4 : c.size_or("sliding_window_pattern", 4));
    drop_rope_of_full_layers(spec);
  }
  const bool norms = c.is_gguf() ? c.stores("blk.0.attn_q_norm.weight") : c.flag_or("use_qk_norm", false);
  for (LayerSpec& layer : spec.layers)
    if (norms) attention(layer).qk_norm = QkNorm::EachHead;
  return spec;
}

}  // namespace

extern const Architecture cohere{kCohereHuggingFace, kCohereGguf, build_cohere};

}  // namespace sluice::models::arch

// Gemma 1 to 3 (text): embeddings scaled by sqrt(dim), norm gains stored less one, GELU; from 2 on sandwich
// norms and alternating windows; 2 caps logits, 3 norms queries and keys and turns the window layers at a
// frequency of their own.
#include <cmath>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kGemmaHuggingFace[] = {"GemmaForCausalLM", "Gemma2ForCausalLM",
                                                  "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration",
                                                  "VaultGemmaForCausalLM"};
constexpr std::string_view kGemmaGguf[] = {"gemma", "gemma2", "gemma3"};

ModelSpec build_gemma(Config& c) {
  using enum WeightSlot;
  const int generation = c.architecture().find('3') != std::string::npos   ? 3
                         : c.architecture().find('2') != std::string::npos ? 2
                                                                           : 1;
  // The first says "gelu" where it means the approximation.
  const bool vault = c.architecture() == kGemmaHuggingFace[4];
  const bool first = generation == 1 && !vault;
  if (first && c.text_or("hidden_act", "gelu") == "gelu") c.drop("hidden_act");
  if (first) c.assume("hidden_act", "gelu_pytorch_tanh");
  if (!first) use_gemma_attention_and_activation(c);
  ModelSpec spec = decoder_spec(c);
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.dim));
  spec.tied_output = c.flag_or("tie_word_embeddings", true);
  const int head_dim = attention(spec.layers[0]).head_dim;
  const bool largest = c.is_gguf() && spec.layers.size() == (generation == 2 ? 46 : generation == 3 ? 62 : 0);
  const int scaled_by = largest ? spec.dim / attention(spec.layers[0]).heads : head_dim;  // of the 27B models
  if (vault) spec.names = spec.names.with({{FfnNorm, "model.layers.{l}.pre_feedforward_layernorm"}});
  if (generation > 1) use_sandwich(spec);
  if (generation > 1 || vault)
    use_windows(c, spec, generation == 2 ? 2 : c.size_or("_sliding_window_pattern", 6));
  if (generation == 3)
    spec.ropes = {make_rope(c, {.dims = head_dim, .default_theta = 1e6f, .layer_type = "full_attention"}),
                  make_local_rope(c, head_dim)};
  spec.logit_softcap = c.number_or("final_logit_softcapping", 0.0f);
  for (LayerSpec& layer : spec.layers) {
    Attention& mixer = attention(layer);
    mixer.scale = 1.0f / std::sqrt(c.number_or("query_pre_attn_scalar", static_cast<float>(scaled_by)));
    if (generation != 3) mixer.softcap = c.number_or("attn_logit_softcapping", 0.0f);
    if (generation == 3) mixer.qk_norm = QkNorm::PerHead;
    if (generation == 3 && mixer.window > 0) mixer.rope = 1;
  }
  if (!c.is_gguf())
    spec.names = spec.names.folded({MixerNorm, MixerPostNorm, FfnNorm, FfnPostNorm, OutputNorm, QNorm, KNorm},
                                   Fold::AddOne);
  return spec;
}

}  // namespace

extern const Architecture gemma{kGemmaHuggingFace, kGemmaGguf, build_gemma};

}  // namespace sluice::models::arch

// Gemma 3n (text): several streams of residuals, a low-rank branch beside attention, gates cut off in the first layers,
// inputs per layer, shared last KV.
#include <fmt/format.h>

#include <cmath>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kGemma3nHuggingFace[] = {"Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"};
constexpr std::string_view kGemma3nGguf[] = {"gemma3n"};

Streams gemma3n_streams(Config& c) {
  const Streams streams{.count = c.size_or("altup_num_inputs", 4),
                        .active = c.size_or("altup_active_idx", 0),
                        .scaled = c.flag_or("altup_correct_scale", true),
                        .laurel_rank = c.size_or("laurel_rank", 64)};
  if (streams.count < 2 || streams.count > 16 || streams.active >= streams.count)
    c.fail(fmt::format("{} streams of which {} is active", streams.count, streams.active));
  return streams;
}

ModelSpec build_gemma3n(Config& c) {
  use_gemma_attention_and_activation(c);
  c.assume("tie_word_embeddings", true);
  c.assume("rope_theta", 1e6);
  ModelSpec spec = decoder_spec(c);
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.dim));
  spec.logit_softcap = c.number_or("final_logit_softcapping", 30.0f);
  spec.per_layer_embedding = c.size_or("hidden_size_per_layer_input", 256);
  spec.per_layer_vocab = c.size_or("vocab_size_per_layer_input", c.is_gguf() ? 0 : 262144);
  spec.streams = gemma3n_streams(c);
  use_windows(c, spec, 5);
  use_sandwich(spec);
  use_wiring(spec, Wiring::Laurel);
  use_local_rope(c, spec);
  share_last_kv(c, spec);
  const std::vector<double> cut =
      c.numbers(c.is_gguf() ? "activation_sparsity_scale" : "activation_sparsity_pattern");
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    Attention& mixer = attention(spec.layers[i]);
    mixer.scale = 1.0f;
    mixer.qk_norm = QkNorm::PerHead;
    mixer.norm_values = true;
    if (i < cut.size())
      std::get<DenseFfn>(spec.layers[i].ffn).cutoff =
          c.is_gguf() ? static_cast<float>(cut[i]) : normal_quantile(cut[i]);
  }
  return spec;
}

}  // namespace

extern const Architecture gemma3n{kGemma3nHuggingFace, kGemma3nGguf, build_gemma3n};

}  // namespace sluice::models::arch

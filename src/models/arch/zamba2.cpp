// Zamba 2: state spaces of Mamba 2. Before some of them run, in turn, blocks of attention and feed-forward that they share.
#include <cmath>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kZamba2HuggingFace[] = {"Zamba2ForCausalLM"};

StateSpaceAfterBlock zamba2_mixer(Config& c, ModelSpec& spec) {
  StateSpaceAfterBlock m;
  m.attention = attention(spec.layers[0]);
  m.attention.input_dim = 2 * spec.dim;
  m.attention.scale *= std::sqrt(2.0f);
  m.ffn = std::get<DenseFfn>(spec.layers[0].ffn);
  m.ffn.adapter_rank = c.size_or("adapter_rank", 128);
  if (c.flag_or("use_shared_attention_adapter", false)) m.attention.adapter_rank = m.ffn.adapter_rank;
  m.scan = state_space_of_least_steps(c, spec.dim);
  m.scan.norm_groups = m.scan.groups;
  m.scan.norm_eps = 1e-5f;
  return m;
}

ModelSpec build_zamba2(Config& c) {
  const bool turns = c.flag_or("use_mem_rope", false);
  if (turns) refuse_flags(c, {"use_long_context"});  // which scales theta, or has scaled it
  c.drop("head_dim");                                // not counted
  c.assume("head_dim", 2 * c.size("hidden_size") / c.size("num_attention_heads"));
  c.drop("rotary_dim");
  c.assume("rotary_dim", c.size("head_dim"));  // whatever partial_rotary_factor says
  c.assume("hidden_act", "gelu");
  c.assume("tie_word_embeddings", true);
  c.assume("mamba_n_heads", c.size_or("n_mamba_heads", 8));
  c.assume("mamba_n_groups", c.size_or("mamba_ngroups", 1));
  c.assume("mamba_hidden_act", "silu");
  ModelSpec spec = decoder_spec(c);
  if (!turns) drop_all_ropes(spec);
  use_shared_blocks(c, spec, zamba2_mixer(c, spec));
  return spec;
}

}  // namespace

extern const Architecture zamba2{kZamba2HuggingFace, {}, build_zamba2};

}  // namespace sluice::models::arch

// Nemotron-H and Nemotron 3: layers of one part each, a state space, attention, a feed-forward or a mixture.
#include "models/family.h"

namespace sluice::models::arch {
namespace {

constexpr std::string_view kNemotronHHuggingFace[] = {"NemotronHForCausalLM"};
constexpr std::string_view kNemotronHGguf[] = {"nemotron_h", "nemotron_h_moe"};
// The kinds of layers, or a letter for each: M, *, - and E.
std::string layer_letters(Config& c) {
  std::string letters = c.text_or("hybrid_override_pattern", "");
  for (const std::string& kind :
       letters.empty() ? layer_kinds(c, "linear_attention") : std::vector<std::string>())
    letters += kind == "moe"                                     ? 'E'
               : kind == "mlp"                                   ? '-'
               : kind == "full_attention" || kind == "attention" ? '*'
                                                                 : 'M';
  return letters;
}

ModelSpec build_nemotron_h(Config& c) {
  const std::string letters = layer_letters(c);
  if (!letters.empty()) c.drop("num_hidden_layers");  // they count, whatever the config says beside
  if (!letters.empty()) c.assume("num_hidden_layers", static_cast<int64_t>(letters.size()));
  c.assume("hidden_act", json::string(c.text_or("mlp_hidden_act", "relu2")));
  ModelSpec spec = decoder_spec(c);
  if (letters.empty()) c.fail("'hybrid_override_pattern' is missing, and so are 'layer_types'");
  drop_all_ropes(spec);
  if (!c.is_gguf()) c.assume("mamba_n_heads", c.size("mamba_num_heads"));
  if (!c.is_gguf()) c.assume("mamba_d_ssm", c.size("mamba_num_heads") * c.size("mamba_head_dim"));
  c.assume("mamba_d_state", c.size_or("ssm_state_size", 128));
  c.assume("mamba_n_groups", c.size_or("n_groups", 8));
  c.assume("mamba_d_conv", c.size_or("conv_kernel", 4));
  c.assume("mamba_hidden_act", "silu");
  StateSpace space = state_space_of_least_steps(c, spec.dim);
  space.norm_groups = space.groups;
  MoeFfn mixture = letters.find('E') == std::string::npos ? MoeFfn{} : grouped_moe_ffn(c);
  mixture.gated = false;
  mixture.latent = c.size_or("moe_latent_size", 0);
  mixture.shared_inner =
      c.size_or(c.is_gguf() ? "shared_expert_intermediate_size" : "moe_shared_expert_intermediate_size",
                mixture.shared_inner);
  for (size_t i = 0; i < spec.layers.size() && i < letters.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    std::get<DenseFfn>(layer.ffn).gated = false;
    if (letters[i] == 'E') layer.ffn = mixture;
    if (letters[i] == 'M') layer.mixer = space;
    if (letters[i] == 'M' || letters[i] == '*')
      layer.ffn = NoFfn{};
    else
      layer.mixer = NoMixer{};
  }
  return spec;
}

}  // namespace

extern const Architecture nemotron_h{kNemotronHHuggingFace, kNemotronHGguf, build_nemotron_h};

}  // namespace sluice::models::arch

// Jamba: state spaces of Mamba 1 with norms, attention without positions in some layers, mixtures in others.
#include <algorithm>

#include "kernels/recurrent.h"
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kJambaHuggingFace[] = {"JambaForCausalLM"};
constexpr std::string_view kJambaGguf[] = {"jamba"};

ModelSpec build_jamba(Config& c) {
  c.assume("rms_norm_eps", 1e-6);
  const bool gguf = c.is_gguf();
  const std::vector<std::string> kinds = gguf ? layer_kinds(c, "mamba") : std::vector<std::string>();
  ModelSpec spec = decoder_spec(c);
  drop_all_ropes(spec);
  ChannelScan scan{.inner = gguf ? c.size("ssm_inner_size") : c.size_or("mamba_expand", 2) * spec.dim,
                   .state_dim = gguf ? c.size("ssm_state_size") : c.size_or("mamba_d_state", 16),
                   .taps = c.size_or(gguf ? "ssm_taps" : "mamba_d_conv", 4),
                   .norms = true};
  scan.step_rank = c.size(gguf ? "ssm_step_rank" : "mamba_dt_rank");
  check_convolution(c, scan.taps);
  if (scan.state_dim < 1 || scan.state_dim > kernels::SelectiveScan::kMaxStateDim)
    c.fail("'mamba_d_state' must be 1 to 1024");
  const auto each = [&](const char* period, int fallback, const char* offset, int from, size_t layer) {
    const auto step = static_cast<size_t>(std::max(1, c.size_or(period, fallback)));
    return layer % step == static_cast<size_t>(c.size_or(offset, from));
  };
  MoeFfn mixture;
  if (c.size_or("num_local_experts", 1) > 1) mixture = moe_ffn(c);
  mixture.routing.score = kernels::Routing::Score::Softmax;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const bool attends = i < kinds.size() ? kinds[i] == "full_attention"
                                          : each("attn_layer_period", 8, "attn_layer_offset", 4, i);
    const bool routes = gguf ? c.stores("blk." + std::to_string(i) + ".ffn_gate_inp.weight")
                             : each("expert_layer_period", 2, "expert_layer_offset", 1, i);
    if (!attends) spec.layers[i].mixer = scan;
    if (mixture.routing.experts > 1 && routes) spec.layers[i].ffn = mixture;
  }
  return spec;
}

}  // namespace

extern const Architecture jamba{kJambaHuggingFace, kJambaGguf, build_jamba};

}  // namespace sluice::models::arch

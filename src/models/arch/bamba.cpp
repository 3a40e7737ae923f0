// Bamba: state spaces of Mamba 2, with attention in some layers.
#include <algorithm>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kBambaHuggingFace[] = {"BambaForCausalLM"};

ModelSpec build_bamba(Config& c) {
  c.assume("partial_rotary_factor", 0.5);
  const std::vector<double> full = c.numbers("attn_layer_indices");
  const std::vector<std::string> kinds = layer_kinds(c, "linear_attention");
  ModelSpec spec = decoder_spec(c);
  const StateSpace space = state_space(c, spec.dim);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const bool listed = std::find(full.begin(), full.end(), static_cast<double>(i)) != full.end();
    const bool attends = i < kinds.size() ? kinds[i] == "full_attention" || kinds[i] == "attention" : listed;
    if (!attends) spec.layers[i].mixer = space;
  }
  return spec;
}

}  // namespace

extern const Architecture bamba{kBambaHuggingFace, {}, build_bamba};

}  // namespace sluice::models::arch

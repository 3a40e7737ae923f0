// Nemotron 3 and 4 and Jais 2: layer norms (in Nemotron with gains stored less one) and a plain feed-forward
// of squared ReLU.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kNemotronHuggingFace[] = {"NemotronForCausalLM", "Jais2ForCausalLM"};
constexpr std::string_view kNemotronGguf[] = {"nemotron", "jais2"};

ModelSpec build_nemotron(Config& c) {
  const bool nemotron = c.architecture() == kNemotronHuggingFace[0];
  if (nemotron) c.assume("partial_rotary_factor", 0.5);
  ModelSpec spec = decoder_spec(c);
  spec.norm = NormKind::Layer;
  use_plain_ffn(c, spec, "relu2");
  if (nemotron)
    spec.names =
        spec.names.folded({WeightSlot::MixerNorm, WeightSlot::FfnNorm, WeightSlot::OutputNorm}, Fold::AddOne);
  return spec;
}

}  // namespace

extern const Architecture nemotron{kNemotronHuggingFace, kNemotronGguf, build_nemotron};

}  // namespace sluice::models::arch

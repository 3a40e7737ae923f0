// Phi 3 and 4 (mini): the Llama shape with fused qkv and gate-up matrices, longrope for long contexts.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kPhi3HuggingFace[] = {"Phi3ForCausalLM"};
constexpr std::string_view kPhi3Gguf[] = {"phi3"};

ModelSpec build_phi3(Config& c) {
  ModelSpec spec = decoder_spec(c);
  spec.outgrown = Outgrown::Recomputed;
  use_windows(c, spec, 0);
  return spec;
}

}  // namespace

extern const Architecture phi3{kPhi3HuggingFace, kPhi3Gguf, build_phi3};

}  // namespace sluice::models::arch

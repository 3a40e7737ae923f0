// Phi 3 and 4 (mini): the Llama shape with fused qkv and gate-up matrices, longrope for long contexts.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kHuggingFace[] = {"Phi3ForCausalLM"};
constexpr std::string_view kGguf[] = {"phi3"};

ModelSpec build(Config& c) {
  ModelSpec spec = decoder_spec(c);
  use_windows(c, spec, 0);
  return spec;
}

}  // namespace

extern const Architecture phi3{kHuggingFace, kGguf, build};

}  // namespace sluice::models::arch

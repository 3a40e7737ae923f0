// Mistral: the Llama shape with a sliding window in every layer (where the config sets one).
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kHuggingFace[] = {"MistralForCausalLM", "MinistralForCausalLM"};
constexpr std::string_view kGguf[] = {"mistral3"};

ModelSpec build(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::Interleaved);
  use_windows(c, spec, 0);
  return spec;
}

}  // namespace

extern const Architecture mistral{kHuggingFace, kGguf, build};

}  // namespace sluice::models::arch

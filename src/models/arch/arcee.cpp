// Arcee AFM: the Llama shape with a plain feed-forward of squared ReLU.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kArceeHuggingFace[] = {"ArceeForCausalLM"};
constexpr std::string_view kArceeGguf[] = {"arcee"};

ModelSpec build_arcee(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::GptJ);
  use_plain_ffn(c, spec, "relu2");
  return spec;
}

}  // namespace

extern const Architecture arcee{kArceeHuggingFace, kArceeGguf, build_arcee};

}  // namespace sluice::models::arch

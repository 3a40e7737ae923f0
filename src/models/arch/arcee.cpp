// Arcee AFM: the Llama shape with a plain feed-forward of squared ReLU.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kHuggingFace[] = {"ArceeForCausalLM"};
constexpr std::string_view kGguf[] = {"arcee"};

ModelSpec build(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::Interleaved);
  use_plain_ffn(c, spec, "relu2");
  return spec;
}

}  // namespace

extern const Architecture arcee{kHuggingFace, kGguf, build};

}  // namespace sluice::models::arch

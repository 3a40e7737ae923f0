// Qwen 2 and 2.5: the Llama shape with biases on q, k and v (bound wherever a file has them).
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kHuggingFace[] = {"Qwen2ForCausalLM"};
constexpr std::string_view kGguf[] = {"qwen2"};

ModelSpec build(Config& c) {
  ModelSpec spec = decoder_spec(c);
  if (c.has("layer_types")) use_windows(c, spec, 0);
  return spec;
}

}  // namespace

extern const Architecture qwen2{kHuggingFace, kGguf, build};

}  // namespace sluice::models::arch

// Helium: the Llama shape rotating neighbouring pairs.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kHuggingFace[] = {"HeliumForCausalLM"};

ModelSpec build(Config& c) {
  c.assume("rope_theta", 100000.0);
  ModelSpec spec = decoder_spec(c);
  spec.ropes[0].style = RopeStyle::Interleaved;
  return spec;
}

}  // namespace

extern const Architecture helium{kHuggingFace, {}, build};

}  // namespace sluice::models::arch

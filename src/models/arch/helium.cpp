// Helium: the Llama shape rotating neighbouring pairs.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kHeliumHuggingFace[] = {"HeliumForCausalLM"};

ModelSpec build_helium(Config& c) {
  c.assume("rope_theta", 100000.0);
  ModelSpec spec = decoder_spec(c);
  spec.ropes[0].style = RopeStyle::GptJ;
  return spec;
}

}  // namespace

extern const Architecture helium{kHeliumHuggingFace, {}, build_helium};

}  // namespace sluice::models::arch

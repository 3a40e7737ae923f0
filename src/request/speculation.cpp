#include "request/speculation.h"

#include <algorithm>

namespace sluice::request {

std::optional<Speculation> speculation_named(std::string_view text) {
  const auto* found = std::find(kSpeculationNames.begin(), kSpeculationNames.end(), text);
  if (found == kSpeculationNames.end()) return std::nullopt;
  return static_cast<Speculation>(found - kSpeculationNames.begin());
}

std::string speculation_names() {
  std::string out;
  for (size_t i = 0; i < kSpeculations; ++i) {
    if (i > 0) out += i + 1 == kSpeculations ? " or " : ", ";
    out += kSpeculationNames[i];
  }
  return out;
}

}  // namespace sluice::request

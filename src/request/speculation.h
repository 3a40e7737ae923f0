// Who guesses the tokens that follow a sequence, and what came of the guesses.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"

namespace sluice::request {

// Off: nobody. Auto: whoever is expected to gain most. The others are proposers.
enum class Speculation : uint8_t { Off, Auto, Ngram, Suffix, Lookahead, Draft };

inline constexpr std::array<std::string_view, 6> kSpeculationNames{"off",    "auto",      "ngram",
                                                                   "suffix", "lookahead", "draft"};
inline constexpr size_t kSpeculations = kSpeculationNames.size();

constexpr std::string_view name(Speculation speculation) {
  return kSpeculationNames[static_cast<size_t>(speculation)];
}
// Nothing where there is none of this name.
std::optional<Speculation> speculation_named(std::string_view text);
// For messages: "off, auto or ngram".
std::string speculation_names();

// In the place of a draft: the executor's draft model finds it when the step runs.
inline constexpr Token kDraftLater = -1;

// The drafts that a step verified for one sequence.
struct Verified {
  Speculation by = Speculation::Off;  // whose they were
  int drafted = 0, accepted = 0;
};

}  // namespace sluice::request

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
enum class Speculation : uint8_t { Off, Auto, Ngram, Suffix, Lookahead, Draft, Mtp, Eagle3 };

inline constexpr std::array<std::string_view, 8> kSpeculationNames{"off",       "auto",  "ngram", "suffix",
                                                                   "lookahead", "draft", "mtp",   "eagle3"};
inline constexpr size_t kSpeculations = kSpeculationNames.size();

constexpr std::string_view name(Speculation speculation) {
  return kSpeculationNames[static_cast<size_t>(speculation)];
}
// Whether its guesses are made by a model, when the step runs that verifies them.
constexpr bool drafts_by_model(Speculation speculation) {
  return speculation >= Speculation::Draft;
}
// Nothing where there is none of this name.
std::optional<Speculation> speculation_named(std::string_view text);
// For messages: "off, auto or ngram".
std::string speculation_names();

// In the place of a draft: the executor's draft model or head finds it when the step runs.
inline constexpr Token kDraftLater = -1;

// The drafts that a step verified for one sequence.
struct Verified {
  Speculation by = Speculation::Off;  // whose they were
  int drafted = 0, accepted = 0;
  // What was expected when they were chosen: how many are right, and how much longer the step takes for them, in units of
  // the step without drafts.
  float expected = 0, cost = 0;
};

}  // namespace sluice::request

#include "runtime/speculation/draft_control.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice::runtime {

namespace {

constexpr double kForget = 0.98;     // of what was seen, with each observation
constexpr double kLeastGain = 1.03;  // below it a guess is left alone
constexpr int kTryAgain = 64;        // after so many guesses that were left alone, one is verified to see
constexpr int kDraftsTried = 2;      // of that one
// What a further token of a step costs where nothing was measured, in units of the first: little, so that it is tried.
constexpr double kCostOfToken = 0.1;
constexpr int kExactSizes = 16;
constexpr double kSizesPerOctave = 4;

}  // namespace

size_t DraftControl::length_class(int match) {
  const int up = match <= 1 ? 0 : static_cast<int>(std::ceil(std::log2(match)));
  return std::min(static_cast<size_t>(up), kLengths - 1);
}

size_t DraftControl::size_class(int tokens) {
  if (tokens <= kExactSizes) return static_cast<size_t>(std::max(tokens, 1) - 1);
  const double beyond = std::log2(static_cast<double>(tokens) / kExactSizes) * kSizesPerOctave;
  return std::min(kExactSizes - 1 + static_cast<size_t>(std::lround(beyond)), kSizes - 1);
}

int DraftControl::class_tokens(size_t index) {
  if (index < kExactSizes) return static_cast<int>(index) + 1;
  return static_cast<int>(std::lround(
      kExactSizes * std::exp2((static_cast<double>(index) - (kExactSizes - 1)) / kSizesPerOctave)));
}

// Between the nearest sizes that were measured, in a straight line. 0: nothing was.
double DraftControl::seconds(int tokens) const {
  const size_t at = size_class(tokens);
  if (seconds_[at] > 0) return seconds_[at];
  size_t below = at, above = at;
  while (below > 0 && seconds_[below] <= 0) --below;
  while (above + 1 < kSizes && seconds_[above] <= 0) ++above;
  const bool has_below = seconds_[below] > 0, has_above = seconds_[above] > 0;
  if (has_below && has_above) {
    const double share = static_cast<double>(tokens - class_tokens(below)) /
                         std::max(1, class_tokens(above) - class_tokens(below));
    return seconds_[below] + share * (seconds_[above] - seconds_[below]);
  }
  if (has_below)
    return seconds_[below] * (1 + kCostOfToken * (tokens - class_tokens(below)) / class_tokens(below));
  return has_above ? seconds_[above] : 0;
}

double DraftControl::relative_cost(int base, int tokens) const {
  const double one = seconds(base), all = seconds(tokens);
  if (one <= 0 || all <= 0) return 1 + kCostOfToken * (tokens - base);
  return std::max(1.0, all / one);
}

double DraftControl::expected(int match, int drafts) const {
  const Acceptance& seen = acceptance_[length_class(match)];
  const double right = seen.right / seen.tried;
  double sum = 1, all = 1;
  for (int i = 0; i < drafts; ++i) sum += all *= right;
  return sum;
}

int DraftControl::worth(int match) {
  if (match <= 0) return 0;
  if (!options_.measured) return options_.most;
  int best = 0;
  double gain = kLeastGain;
  for (int drafts = 1; drafts <= options_.most; ++drafts) {
    const double rate = expected(match, drafts) / relative_cost(base_tokens_, base_tokens_ + drafts);
    if (rate > gain) {
      gain = rate;
      best = drafts;
    }
  }
  if (best > 0) {
    declined_ = 0;
  } else if (++declined_ >= kTryAgain) {
    declined_ = 0;
    best = std::min(kDraftsTried, options_.most);
  }
  return best;
}

void DraftControl::note_verified(int match, int drafts, int accepted) {
  drafts_in_step_ += drafts;
  Acceptance& seen = acceptance_[length_class(match)];
  seen.right = kForget * seen.right + accepted;
  seen.tried = kForget * seen.tried + std::min(accepted + 1, drafts);
}

void DraftControl::note_step(int tokens, double seconds) {
  double& known = seconds_[size_class(tokens)];
  known = known > 0 ? 0.8 * known + 0.2 * seconds : seconds;
  base_tokens_ = std::max(1, tokens - std::exchange(drafts_in_step_, 0));
}

}  // namespace sluice::runtime

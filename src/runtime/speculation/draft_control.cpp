#include "runtime/speculation/draft_control.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice::runtime {

namespace {

constexpr double kForget = 0.98;     // of what was seen, with each observation
constexpr double kLeastGain = 0.03;  // of a sequence's tokens per second: below it a guess is left alone
// Share of the step's tokens that drafts must add for each share of its time: costs and acceptance are known within some
// per cent, and of many choices those are taken whose costs are known too low. A draft model has one choice a step.
constexpr double kLeastReturn = 1.4;
constexpr int kTryAgain = 64;    // after so many steps whose guesses were left alone, one is verified to see
constexpr int kDraftsTried = 2;  // of that one
// What a further token of a step costs where nothing was measured, in units of the first: little, so that it is tried.
constexpr double kCostOfToken = 0.1;
constexpr int kExactSizes = 64;
constexpr double kSizesPerOctave = 4;
// Before anything was verified, by the length of the match, and how many tokens that counts as.
constexpr double kFirstAcceptance[] = {0.1, 0.3, 0.5, 0.7, 0.85, 0.9};
constexpr double kFirstTried = 4;
// Other programs only ever make a step longer: a longer time than the known one is believed little by little, but for the
// first few of a size. Of these the shortest counts: the first has records and plans of its size made on the way.
constexpr double kMostRise = 1.03, kMostRiseAtFirst = 1.15;
constexpr int kFirstSeen = 4;
// Of a change, the least share that is laid to the size itself; the rest is the machine's. The sizes that run most tell of
// the machine: where a seldom one takes another time than is known, rather that is wrong.
constexpr double kOwnShare = 0.1;
constexpr double kRecent = 0.98;  // a step's weight among those that ran lately, after each further one

// What `known` is multiplied by when `measured` was.
double change_of(double known, double measured, double most_rise) {
  return measured < known ? (1 + measured / known) / 2 : std::min(measured / known, most_rise);
}

}  // namespace

DraftControl::DraftControl(const DraftControlOptions& options) : options_(options) {
  for (auto& lengths : acceptance_)
    for (size_t i = 0; i < kLengths; ++i) lengths[i] = {kFirstAcceptance[i] * kFirstTried, kFirstTried};
}

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

// In a straight line between the nearest sizes that were measured, and on from the smallest and the largest of them. 0:
// nothing was.
double DraftControl::time_of(int tokens) const {
  size_t first = kSizes, below = kSizes, above = kSizes;
  for (size_t i = 0; i < kSizes && above == kSizes; ++i) {
    if (sizes_[i].seen == 0) continue;
    if (class_tokens(i) > tokens) {
      above = i;
    } else {
      first = std::min(first, i);
      below = i;
    }
  }
  if (below == kSizes) return above == kSizes ? 0 : sizes_[above].time;
  const int beyond = tokens - class_tokens(below);
  const auto slope = [&](size_t from, size_t to) {
    return (sizes_[to].time - sizes_[from].time) / (class_tokens(to) - class_tokens(from));
  };
  if (above < kSizes) return sizes_[below].time + beyond * slope(below, above);
  if (first < below) return sizes_[below].time + beyond * std::max(0.0, slope(first, below));
  return sizes_[below].time * (1 + kCostOfToken * beyond / class_tokens(below));
}

double DraftControl::relative_cost(int base, int tokens) const {
  const double one = time_of(base), all = time_of(tokens);
  if (one <= 0 || all <= 0) return 1 + kCostOfToken * (tokens - base);
  return std::max(1.0, all / one);
}

double DraftControl::relative_draft_cost(int base) const {
  const double one = time_of(base);
  return one > 0 && draft_time_ > 0 ? draft_time_ / one : kCostOfToken;
}

double DraftControl::acceptance(request::Speculation by, int match) const {
  const Acceptance& seen = acceptance_[static_cast<size_t>(by)][length_class(match)];
  return seen.right / seen.tried;
}

double DraftControl::step_cost(int drafts, double passes) const {
  return relative_cost(sequences_, tokens_ + drafts) + passes * relative_draft_cost(sequences_);
}

DraftControl::Best DraftControl::best_of(const Guess& guess, int sequences, double passes) const {
  Best best;
  const double right = acceptance(guess.by, guess.match);
  const double so_far = step_cost(0, passes_);
  double all = 1, sum = 0;
  for (int drafts = 1; drafts <= std::min(options_.most, guess.tokens); ++drafts) {
    sum += all *= right;
    const double more = sequences * sum / expected_;
    const double with_drafts = step_cost(sequences * drafts, std::max<double>(passes_, passes * drafts));
    const double cost = with_drafts / so_far;
    if (more < (passes > 0 ? 1 : kLeastReturn) * (cost - 1)) continue;
    const double gain = (1 + more) / std::max(1.0, cost);
    if (gain > best.gain) best = {drafts, gain, with_drafts - so_far};
  }
  return best;
}

// Its passes run for all sequences that it guesses for, and its guesses are as likely right for each: how many there are is
// chosen once for all of them. Gain and cost are what falls to one.
DraftControl::Best DraftControl::best_of_model(const Guess& guess) {
  if (!model_best_) {
    model_best_ = best_of(guess, sharing_, 1);
    model_best_->gain = 1 + (model_best_->gain - 1) / sharing_;
    model_best_->cost /= sharing_;
  }
  return {std::min(model_best_->drafts, guess.tokens), model_best_->gain, model_best_->cost};
}

// Of one sequence of a step, until some were verified: what is offered while the next step runs already is not.
bool DraftControl::try_again() {
  declined_ = true;
  return declined_steps_ >= kTryAgain && !std::exchange(tried_, true);
}

DraftControl::Choice DraftControl::weighed(std::span<const Guess> guesses, Choice choice) const {
  if (choice.drafts == 0) return choice;
  const Guess& guess = guesses[choice.guess];
  const double right = acceptance(guess.by, guess.match);
  double all = 1;
  for (int i = 0; i < choice.drafts; ++i) choice.expected += all *= right;
  return choice;
}

double DraftControl::added_cost(const Guess& guess, int drafts) const {
  const int passes = request::drafts_by_model(guess.by) ? std::max(passes_, drafts) : passes_;
  return step_cost(drafts, passes) - step_cost(0, passes_);
}

DraftControl::Choice DraftControl::choose(std::span<const Guess> guesses) {
  const Choice chosen = weighed(guesses, choice_of(guesses));
  model_guesses_ += std::any_of(guesses.begin(), guesses.end(),
                                [](const Guess& guess) { return request::drafts_by_model(guess.by); })
                        ? 1
                        : 0;
  if (chosen.drafts == 0) return chosen;
  if (request::drafts_by_model(guesses[chosen.guess].by)) passes_ = std::max(passes_, chosen.drafts);
  tokens_ += chosen.drafts;
  expected_ += chosen.expected;
  return chosen;
}

DraftControl::Choice DraftControl::choice_of(std::span<const Guess> guesses) {
  if (guesses.empty()) return {};
  const auto unweighed = [&](int drafts) -> Choice {
    drafts = std::min(drafts, guesses[0].tokens);
    return {0, drafts, 0, drafts > 0 ? added_cost(guesses[0], drafts) : 0};
  };
  if (!options_.measured) return unweighed(options_.most);
  Choice chosen;
  Best best;
  for (size_t i = 0; i < guesses.size(); ++i) {
    const bool by_model = request::drafts_by_model(guesses[i].by);
    const Best found = by_model ? best_of_model(guesses[i]) : best_of(guesses[i], 1, 0);
    if (found.gain <= best.gain) continue;
    best = found;
    chosen = {i, found.drafts, 0, found.cost};
  }
  if (best.gain <= 1 + kLeastGain / sequences_) {
    chosen = unweighed(try_again() ? kDraftsTried : 0);
  } else {
    declined_steps_ = 0;
  }
  return chosen;
}

void DraftControl::note_verified(int match, const request::Verified& verified) {
  declined_steps_ = 0;
  Acceptance& seen = acceptance_[static_cast<size_t>(verified.by)][length_class(match)];
  seen.right = kForget * seen.right + verified.accepted;
  seen.tried = kForget * seen.tried + std::min(verified.accepted + 1, verified.drafted);
}

void DraftControl::note_cost(int tokens, double seconds) {
  Size& size = sizes_[size_class(tokens)];
  double most = 0;
  for (Size& each : sizes_) most = std::max(most, each.recent *= kRecent);
  most = std::max(most, size.recent += 1 - kRecent);
  const double measured = seconds / speed_;
  if (size.seen++ == 0) {
    size.time = measured;
    return;
  }
  if (size.seen <= kFirstSeen && measured < size.time) {
    size.time = measured;
    return;
  }
  const double change =
      change_of(size.time, measured, size.seen <= kFirstSeen ? kMostRiseAtFirst : kMostRise);
  const double own = std::max({kOwnShare, 1.0 / size.seen, 1 - size.recent / most});
  size.time *= std::pow(change, own);
  speed_ *= std::pow(change, 1 - own);
}

void DraftControl::note_draft_cost(int passes, double seconds) {
  const double measured = seconds / passes / speed_;
  draft_time_ = draft_time_ > 0 ? draft_time_ * change_of(draft_time_, measured, kMostRise) : measured;
}

void DraftControl::note_step(int sequences) {
  declined_steps_ += std::exchange(declined_, false) ? 1 : 0;
  tried_ = false;
  sequences_ = std::max(1, sequences);
  tokens_ = sequences_;
  passes_ = 0;
  model_best_.reset();
  sharing_ = std::max(1, std::exchange(model_guesses_, 0));
  expected_ = sequences_;
}

}  // namespace sluice::runtime

#include "sampling/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "sampling/logprobs.h"

namespace sluice::sampling {

BeamState::BeamState(Options options)
    : options_(std::move(options)),
      width_(static_cast<size_t>(options_.beam.width)),
      candidates_(options_.beam.width * std::max(2, 1 + static_cast<int>(options_.end_tokens.size()))) {
  SLUICE_CHECK_GE(options_.beam.width, 1);
  SLUICE_CHECK_GE(options_.max_tokens, 1);
  running_.push_back({.node = kRoot, .score = 0});
}

std::vector<BeamState::Candidate> BeamState::ranked(
    std::span<const std::vector<ScoredToken>> candidates) const {
  SLUICE_CHECK_EQ(candidates.size(), running_.size());
  std::vector<Candidate> all;
  for (size_t beam = 0; beam < candidates.size(); ++beam) {
    for (const ScoredToken& entry : candidates[beam]) {
      all.push_back({beam, entry.token, entry.score, running_[beam].score + entry.score});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  if (all.size() > static_cast<size_t>(candidates_)) all.resize(static_cast<size_t>(candidates_));
  return all;
}

void BeamState::keep_rows(std::span<const std::vector<ScoredToken>> candidates) {
  if (options_.logprobs == 0) return;
  first_row_ = rows_.size();
  for (const std::vector<ScoredToken>& row : candidates) {
    rows_.push_back(as_logprobs(std::span(row).first(std::min<size_t>(row.size(), options_.logprobs))));
  }
}

size_t BeamState::add_node(const Candidate& candidate) {
  nodes_.push_back(
      {running_[candidate.beam].node, candidate.token, candidate.logprob, first_row_ + candidate.beam});
  return nodes_.size() - 1;
}

bool BeamState::is_end(Token token) const {
  return std::find(options_.end_tokens.begin(), options_.end_tokens.end(), token) !=
         options_.end_tokens.end();
}

double BeamState::penalized(float score, int length) const {
  return score / std::pow(static_cast<double>(length), options_.beam.length_penalty);
}

void BeamState::finish(const Candidate& candidate, bool cut) {
  const double score = penalized(candidate.score, length_);
  const auto place =
      std::upper_bound(finished_.begin(), finished_.end(), score,
                       [](double value, const Finished& other) { return value > other.score; });
  if (place == finished_.end() && finished_.size() == width_) return;
  finished_.insert(place, {.node = add_node(candidate), .score = score, .cut = cut});
  if (finished_.size() > width_) finished_.pop_back();
}

std::vector<request::LaneMove> BeamState::advance(std::span<const std::vector<ScoredToken>> candidates,
                                                  const Judge& judge) {
  SLUICE_CHECK(!done_);
  const std::vector<Candidate> all = ranked(candidates);
  keep_rows(candidates);
  ++length_;
  const bool last_step = length_ == options_.max_tokens;
  std::vector<Beam> next;
  std::vector<request::LaneMove> moves;
  size_t rank = 0;  // among those that are not broken
  for (const Candidate& candidate : all) {
    const bool ends = is_end(candidate.token);
    const bool is_kept = rank < width_ || (!last_step && !ends && next.size() < width_);
    if (!is_kept) continue;
    const Fit fit = judge ? judge(candidate.beam, candidate.token) : Fit::Open;
    if (fit == Fit::Broken) continue;
    const bool is_best = rank++ < width_;
    if (last_step || ends || fit == Fit::Complete) {
      if (is_best) finish(candidate, !ends && fit != Fit::Complete);
    } else if (next.size() < width_) {
      next.push_back({.node = add_node(candidate), .score = candidate.score});
      moves.push_back({static_cast<int>(candidate.beam), candidate.token});
    }
  }
  running_ = std::move(next);
  done_ = running_.empty() || !improvement_possible();
  if (done_) return {};
  return moves;
}

bool BeamState::improvement_possible() const {
  if (finished_.size() < width_) return true;
  if (options_.beam.early_stopping == request::EarlyStopping::AtWidth) return false;
  const bool grows =
      options_.beam.early_stopping == request::EarlyStopping::Never && options_.beam.length_penalty > 0;
  const int length = grows ? options_.max_tokens : length_;
  return penalized(running_.front().score, length) > finished_.back().score;
}

std::vector<request::Hypothesis> BeamState::best(size_t n) const {
  std::vector<request::Hypothesis> hypotheses;
  for (size_t i = 0; i < std::min(n, finished_.size()); ++i) {
    request::Hypothesis hypothesis{.score = finished_[i].score};
    for (size_t at = finished_[i].node; at != kRoot; at = nodes_[at].parent) {
      const Node& node = nodes_[at];
      request::Sampled token{.token = node.token, .logprob = node.logprob};
      if (!rows_.empty()) token.top = rows_[node.row];
      hypothesis.tokens.push_back(std::move(token));
    }
    std::reverse(hypothesis.tokens.begin(), hypothesis.tokens.end());
    hypothesis.reason = finished_[i].cut ? request::FinishReason::Length : request::FinishReason::Stop;
    hypotheses.push_back(std::move(hypothesis));
  }
  return hypotheses;
}

}  // namespace sluice::sampling

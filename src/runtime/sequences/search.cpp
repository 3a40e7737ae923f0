#include "runtime/sequences/search.h"

#include <optional>

#include "sampling/beam_search.h"
#include "sampling/contrastive.h"

namespace sluice::runtime {

void Search::move(std::span<const request::LaneMove> moves) {
  std::vector<SearchLane> next;
  for (const request::LaneMove& step : moves) {
    SearchLane& lane = next.emplace_back(lanes_[static_cast<size_t>(step.parent)]);
    lane.tokens.push_back(step.token);
    lane.sampler.accept(step.token);
  }
  lanes_ = std::move(next);
}

namespace {

class BeamLanes : public Search {
 public:
  BeamLanes(const request::Request& request, SearchLane first)
      : Search(std::move(first)),
        choices_(static_cast<size_t>(request.sampling().n)),
        state_({.beam = std::get<request::BeamSearch>(request.sampling().method),
                .max_tokens = request.sampling().max_tokens,
                .end_tokens = {lanes_[0].sampler.end_tokens().begin(), lanes_[0].sampler.end_tokens().end()},
                .logprobs = request.sampling().logprobs.value_or(0)}) {}

  Result<request::SearchMove> advance(std::span<const HostRow> rows,
                                      sampling::Workspace& workspace) override {
    std::vector<std::vector<sampling::ScoredToken>> candidates;
    for (size_t i = 0; i < rows.size(); ++i) {
      auto best = lanes_[i].sampler.beam_candidates(rows[i].logits, state_.candidates_per_beam(), workspace);
      if (!best) return best.error();
      candidates.push_back(std::move(*best));
    }
    std::optional<Error> broken;
    const auto judge = [&](size_t beam, Token token) {
      const Result<bool> fulfilled = lanes_[beam].sampler.fulfills(token);
      if (!fulfilled) broken = fulfilled.error();
      if (!fulfilled) return sampling::BeamState::Fit::Broken;
      return *fulfilled ? sampling::BeamState::Fit::Complete : sampling::BeamState::Fit::Open;
    };
    request::SearchMove result{.moves = state_.advance(candidates, judge)};
    if (state_.done()) {
      result.moves.clear();
      result.hypotheses = state_.best(choices_);
      if (result.hypotheses.empty() && broken) return *broken;
    } else {
      move(result.moves);
    }
    return result;
  }

 private:
  size_t choices_;
  sampling::BeamState state_;
};

// Each step runs the likeliest candidates as lanes, then keeps the one that the definition prefers.
class ContrastiveLanes : public Search {
 public:
  ContrastiveLanes(const request::Request& request, SearchLane first, int dim)
      : Search(std::move(first)),
        method_(std::get<request::ContrastiveSearch>(request.sampling().method)),
        max_tokens_(request.sampling().max_tokens),
        logprobs_(request.sampling().logprobs.value_or(0)),
        dim_(static_cast<size_t>(dim)) {}

  bool wants_context() const override { return true; }

  void take_context(int begin, std::span<const float> hidden) override {
    const size_t at = static_cast<size_t>(begin) * dim_;
    if (context_.size() < at + hidden.size()) context_.resize(at + hidden.size());
    std::copy(hidden.begin(), hidden.end(), context_.begin() + static_cast<long>(at));
  }

  Result<request::SearchMove> advance(std::span<const HostRow> rows,
                                      sampling::Workspace& workspace) override {
    request::SearchMove result;
    size_t kept = 0;
    if (!candidates_.empty()) {
      Result<size_t> chosen = choose(rows);
      if (!chosen) return chosen.error();
      kept = *chosen;
      const sampling::TokenSampler& sampler = lanes_[kept].sampler;
      if (sampler.violation()) return *sampler.violation();
      const bool ended = sampler.ends(candidates_[kept].token) || sampler.fulfilled();
      result.settled.push_back(std::move(reports_[kept]));
      if (ended || ++settled_ >= max_tokens_) {
        result.reason = ended ? request::FinishReason::Stop : request::FinishReason::Length;
        return result;
      }
    }
    if (Status found = find_candidates(lanes_[kept].sampler, rows[kept].logits, workspace); !found)
      return found.error();
    for (const sampling::ScoredToken& candidate : candidates_)
      result.moves.push_back({static_cast<int>(kept), candidate.token});
    move(result.moves);
    return result;
  }

 private:
  // The next candidates, each with what is reported should it be chosen.
  Status find_candidates(const sampling::TokenSampler& sampler, std::span<float> logits,
                         sampling::Workspace& workspace) {
    const Result<sampling::RowLogprobs> row = sampling::RowLogprobs::of(logits, logprobs_, workspace.buffer);
    if (!row) return row.error();
    workspace.raw.assign(logits.begin(), logits.end());
    auto next = sampler.likeliest(logits, method_.top_k, workspace);
    if (!next) return next.error();
    candidates_ = std::move(*next);
    reports_.clear();
    for (const sampling::ScoredToken& candidate : candidates_)
      reports_.push_back(row->report(candidate.token, workspace.raw[static_cast<size_t>(candidate.token)]));
    return {};
  }

  Result<size_t> choose(std::span<const HostRow> rows) {
    std::vector<float> probabilities, hidden;
    for (const sampling::ScoredToken& candidate : candidates_) probabilities.push_back(candidate.score);
    for (const HostRow& row : rows) hidden.insert(hidden.end(), row.hidden.begin(), row.hidden.end());
    const size_t known = (lanes_[0].tokens.size() - 1) * dim_;
    SLUICE_CHECK_GE(context_.size(), known);
    Result<size_t> chosen = sampling::select_contrastive(
        {.probabilities = probabilities, .hidden = hidden, .context = std::span(context_).first(known)},
        method_.alpha);
    if (chosen) take_context(static_cast<int>(lanes_[0].tokens.size()) - 1, rows[*chosen].hidden);
    return chosen;
  }

  request::ContrastiveSearch method_;
  int max_tokens_;
  int logprobs_;  // likeliest tokens to report beside each token
  size_t dim_;
  std::vector<float> context_;                     // [tokens before the candidates, dim]
  std::vector<sampling::ScoredToken> candidates_;  // with probabilities, one per lane
  std::vector<request::Sampled> reports_;          // of the candidates
  int settled_ = 0;                                // tokens so far
};

}  // namespace

std::unique_ptr<Search> make_search(const request::Request& request, SearchLane first, int dim) {
  if (std::holds_alternative<request::BeamSearch>(request.sampling().method))
    return std::make_unique<BeamLanes>(request, std::move(first));
  if (std::holds_alternative<request::ContrastiveSearch>(request.sampling().method))
    return std::make_unique<ContrastiveLanes>(request, std::move(first), dim);
  return nullptr;
}

}  // namespace sluice::runtime

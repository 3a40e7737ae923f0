// Beam search as a pure state machine: candidates of the running beams in, the beams to run next out. It
// knows no model, no cache and no logits, and decides as transformers does for one prompt:
//
// * Of all continuations the best max(2, 1 + number of end tokens) * width are looked at, which leaves enough
// that do
//   not end to run `width` beams.
// * One that ends becomes a hypothesis if it is among the best `width` of them; its score is the sum of its
//   log-probabilities / length^length_penalty, the end token counted. The best `width` hypotheses are kept.
// * One that completes the request's constraint ends as well, without an end token; one that breaks it is passed over.
// * The search is over when max_tokens are reached, where everything among the best `width` becomes a
// hypothesis, or
//   when `width` hypotheses exist and early_stopping says so.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "request/sampling_params.h"
#include "request/step.h"
#include "sampling/row_math.h"

namespace sluice::sampling {

class BeamState {
 public:
  struct Options {
    request::BeamSearch beam;
    int max_tokens = 0;
    std::vector<Token> end_tokens;
    int logprobs = 0;  // likeliest tokens to report beside each token of a hypothesis
  };
  // What a token makes of a beam's constraint.
  enum class Fit { Open, Complete, Broken };
  using Judge = std::function<Fit(size_t beam, Token token)>;

  // One beam runs at first: the prompt.
  explicit BeamState(Options options);

  // Best continuations of each beam that advance() needs to see.
  int candidates_per_beam() const { return std::max(candidates_, options_.logprobs); }
  size_t running() const { return running_.size(); }
  bool done() const { return done_; }

  // One step. candidates[i] are continuations of running beam i with their log-probabilities, best first.
  // `judge` is asked about continuations that would be kept; without it all are open. Returns the beams to run next, best
  // first; none when the search is over. REQUIRES: !done()
  std::vector<request::LaneMove> advance(std::span<const std::vector<ScoredToken>> candidates,
                                         const Judge& judge = {});

  // The best hypotheses, best first; the end token that ended one is its last. Log-probabilities are those
  // that the candidates had. As many as `width` when the search is over, unless too few tokens were allowed; none where
  // every continuation is broken.
  std::vector<request::Hypothesis> best(size_t n) const;

 private:
  // A token and the node it continues; sequences share their beginnings.
  struct Node {
    size_t parent;
    Token token;
    float logprob;
    size_t row;  // of rows_, where they are kept
  };
  struct Beam {
    size_t node;
    float score;  // sum of log-probabilities, in float as transformers sums them
  };
  struct Candidate {
    size_t beam;
    Token token;
    float logprob;
    float score;
  };
  struct Finished {
    size_t node;
    double score;
    bool cut;  // by max_tokens
  };
  static constexpr size_t kRoot = static_cast<size_t>(-1);

  std::vector<Candidate> ranked(std::span<const std::vector<ScoredToken>> candidates) const;
  void keep_rows(std::span<const std::vector<ScoredToken>> candidates);
  size_t add_node(const Candidate& candidate);
  void finish(const Candidate& candidate, bool cut);
  bool is_end(Token token) const;
  double penalized(float score, int length) const;
  bool improvement_possible() const;

  Options options_;
  size_t width_;
  int candidates_;
  int length_ = 0;  // tokens of every running beam
  bool done_ = false;
  std::vector<Node> nodes_;
  std::vector<std::vector<request::TokenLogprob>>
      rows_;              // likeliest tokens of every row seen, where asked for
  size_t first_row_ = 0;  // of rows_, that of running beam 0
  std::vector<Beam> running_;
  std::vector<Finished> finished_;  // best first
};

}  // namespace sluice::sampling

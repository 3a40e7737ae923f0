// One sequence's way from logits to its next token. The sampler holds what the sequence has said; scratch
// comes from the caller, so a thousand sequences share one workspace. Copying a sampler forks the sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "grammar/matcher.h"
#include "request/sampling_params.h"
#include "request/step.h"
#include "sampling/filters.h"
#include "sampling/logprobs.h"
#include "sampling/philox.h"
#include "sampling/processors.h"
#include "sampling/row_math.h"
#include "sampling/token_history.h"

namespace sluice::sampling {

struct SequenceStart {
  std::shared_ptr<const request::SamplingParams> params;  // valid for this vocabulary
  int vocab = 0;                                          // width of a logits row
  std::span<const Token> prompt;
  std::span<const Token> eos_tokens;  // the model's own end tokens
  uint64_t seed = 0;                  // the request's, or one sampled when it was admitted
  uint32_t choice = 0;                // which of the request's sequences
  std::shared_ptr<const grammar::CompiledGrammar> grammar = nullptr;  // of the request's constraint
};

class TokenSampler {
 public:
  explicit TokenSampler(const SequenceStart& start);

  // The grammar of a constraint that was still compiled when the sequence came. REQUIRES: nothing was accepted.
  void set_grammar(std::shared_ptr<const grammar::CompiledGrammar> grammar);

  // Chooses the next token from a row of logits, which is used up. The choice depends on the row, the tokens
  // accepted so far and the seed alone. A row with NaN or +Inf, or of which no token is left, is an error of
  // this sequence. Log-probabilities come where the request asks for them or ranks its choices by them, else
  // they are 0. REQUIRES: the method samples tokens (Sampling, or ContrastiveDecoding after its rows were
  // combined)
  Result<request::Sampled> sample(std::span<float> logits, Workspace& workspace) const;

  // The distribution that sample() samples from; it lives in the workspace until that is used again.
  Result<Distribution> distribution(std::span<float> logits, Workspace& workspace) const;

  // The best continuations of a beam: processors applied to the log-softmax, without renormalising, as
  // transformers. Best first; fewer than `count` where the rest are masked.
  Result<std::vector<ScoredToken>> beam_candidates(std::span<float> logits, int count,
                                                   Workspace& workspace) const;

  // The likeliest tokens and their probabilities after the processors, the candidates of contrastive search.
  Result<std::vector<ScoredToken>> likeliest(std::span<float> logits, int count, Workspace& workspace) const;

  void accept(Token token);
  // Takes back the last `count` accepted tokens.
  void rollback(size_t count);
  // Whether tokens are excluded by mask(): by a grammar, or by a list of those that are allowed.
  bool has_mask() const { return matcher_.has_value() || params_->allowed_tokens.has_value(); }
  // A bit for each token that may come next (token i has bit i % 32 of word i / 32), those that other processors mask
  // among them. REQUIRES: a word for every 32 tokens of the vocabulary, !fulfilled()
  Status fill_mask(std::span<uint32_t> mask) const;
  // The constraint is fulfilled: nothing can follow.
  bool fulfilled() const { return matcher_ && matcher_->ended(); }
  // Whether `token` would fulfil the constraint; an error where it would break it.
  Result<bool> fulfills(Token token) const;
  // The only token that can follow, where the constraint leaves one: sample() would give it whatever the logits are.
  // Nothing where log-probabilities are wanted, which need the logits, or where processors might forbid it.
  std::optional<Token> forced();
  // Why what was accepted is not what the constraint asks for. Set once a finished answer fails its check.
  const std::optional<Error>& violation() const { return violation_; }
  std::span<const Token> output() const { return history_.output(); }

  // The filters, where one model's processed logits are all that they work on. Null otherwise.
  const request::Sampling* plain_sampling() const;
  // How many of the likeliest tokens to report; nothing where no log-probabilities are needed.
  std::optional<int> wanted_logprobs() const;
  // What sample() would sample by once `ahead` more tokens are accepted.
  RandomAt next_random(int ahead) const {
    return {.seed = seed_, .choice = choice_, .position = output().size() + static_cast<size_t>(ahead)};
  }

  // Tokens after which the sequence is over: the request's stop tokens, and the model's unless they are
  // ignored.
  std::span<const Token> end_tokens() const { return processors_.end_tokens(); }
  bool ends(Token token) const;

  // A sampler whose samples are those of another choice of the same request.
  TokenSampler fork(uint32_t choice) const;

 private:
  Result<float> process(std::span<float> logits, Workspace& workspace) const;
  // The grammar's mask of the next token; empty where every token may follow. Filled once for each position.
  Result<std::span<const int32_t>> grammar_mask(std::vector<int32_t>& mask) const;
  Result<MaskedMaxima> mask_by_grammar(std::span<float> logits, Workspace& workspace) const;

  std::shared_ptr<const request::SamplingParams> params_;
  int vocab_;
  uint64_t seed_;
  uint32_t choice_;
  Processors processors_;
  TokenHistory history_;
  std::optional<grammar::Matcher> matcher_;
  std::optional<Error> violation_;
  std::vector<int32_t> next_mask_;  // of the next token, where forced() filled it; empty: it did not
};

// Says that the processors have masked every token.
Error no_token_left(size_t position);

// The `n` of `cumulative_logprobs` that are greatest, as indices, best first, the lower index first among
// equals.
std::vector<size_t> best_choices(std::span<const double> cumulative_logprobs, size_t n);

}  // namespace sluice::sampling

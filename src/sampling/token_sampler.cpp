#include "sampling/token_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "sampling/row_math.h"

namespace sluice::sampling {
namespace {

// Sorted and distinct. A model may name end tokens that have no logit; those cannot be chosen.
std::vector<Token> end_tokens_of(const SequenceStart& start) {
  std::vector<Token> tokens = start.params->stop_tokens;
  if (!start.params->ignore_eos)
    tokens.insert(tokens.end(), start.eos_tokens.begin(), start.eos_tokens.end());
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  std::erase_if(tokens, [&](Token token) { return token < 0 || token >= start.vocab; });
  return tokens;
}

}  // namespace

TokenSampler::TokenSampler(const SequenceStart& start)
    : params_(start.params),
      vocab_(start.vocab),
      seed_(start.seed),
      choice_(start.choice),
      processors_(params_, end_tokens_of(start)),
      history_(start.prompt, processors_.needs()) {
  if (start.grammar != nullptr) set_grammar(start.grammar);
}

void TokenSampler::set_grammar(std::shared_ptr<const grammar::CompiledGrammar> grammar) {
  matcher_.emplace(std::move(grammar), processors_.end_tokens(),
                   params_->constraint ? params_->constraint->start : request::FreeStart{});
}

void TokenSampler::accept(Token token) {
  history_.append(token);
  next_mask_.clear();
  if (!matcher_ || violation_) return;
  if (const Status taken = matcher_->accept(token); !taken) violation_ = taken.error();
}

void TokenSampler::rollback(size_t count) {
  history_.rollback(count);
  next_mask_.clear();
  violation_.reset();
  const size_t left = output().size();
  if (matcher_ && matcher_->accepted() > left) matcher_->rollback(matcher_->accepted() - left);
}

const request::Sampling* TokenSampler::plain_sampling() const {
  return std::get_if<request::Sampling>(&params_->method);
}

std::optional<int> TokenSampler::wanted_logprobs() const {
  if (params_->logprobs) return params_->logprobs;
  const request::Sampling* sampling = request::sampling_of(*params_);
  if (sampling != nullptr && sampling->best_of > params_->n) return 0;
  return std::nullopt;
}

Result<float> TokenSampler::process(std::span<float> logits, Workspace& workspace) const {
  SLUICE_CHECK_EQ(logits.size(), static_cast<size_t>(vocab_));
  const Result<MaskedMaxima> maxima = mask_by_grammar(logits, workspace);
  if (!maxima.ok()) return maxima.error();
  if (std::isinf(maxima->before)) return Error{ErrorCode::Numerical, "the logits of all tokens are -inf"};
  if (violation_) return *violation_;
  Result<float> maximum = maxima->after;
  if (processors_.active()) {
    processors_.apply(logits, history_, workspace.buffer);
    maximum = row_maximum(logits);
  }
  if (!maximum.ok() || !std::isinf(*maximum)) return maximum;
  return no_token_left(output().size());
}

// Before the processors: a token that they would favour may not be what the constraint allows.
Result<MaskedMaxima> TokenSampler::mask_by_grammar(std::span<float> logits, Workspace& workspace) const {
  std::span<const int32_t> mask;
  if (matcher_ && !violation_) {
    const Result<std::span<const int32_t>> filled = grammar_mask(workspace.mask);
    if (!filled) return filled.error();
    mask = *filled;
  }
  if (!mask.empty()) return keep_allowed(logits, mask);
  const Result<float> maximum = row_maximum(logits);
  if (!maximum.ok()) return maximum.error();
  return MaskedMaxima{*maximum, *maximum};
}

Result<std::span<const int32_t>> TokenSampler::grammar_mask(std::vector<int32_t>& mask) const {
  if (!next_mask_.empty()) return std::span<const int32_t>(next_mask_);
  mask.resize(matcher_->mask_words());
  const Result<bool> filled = matcher_->fill(mask);
  if (!filled) return filled.error();
  return *filled ? std::span<const int32_t>(mask) : std::span<const int32_t>();
}

Status TokenSampler::fill_mask(std::span<uint32_t> mask) const {
  SLUICE_CHECK_EQ(mask.size(), (static_cast<size_t>(vocab_) + 31) / 32);
  std::fill(mask.begin(), mask.end(), ~uint32_t{0});
  if (const size_t over = mask.size() * 32 - static_cast<size_t>(vocab_); over > 0) mask.back() >>= over;
  if (matcher_) {
    if (violation_) return *violation_;
    std::vector<int32_t> scratch;
    const Result<std::span<const int32_t>> allowed = grammar_mask(scratch);
    if (!allowed) return allowed.error();
    for (size_t i = 0; i < mask.size() && !allowed->empty(); ++i)
      mask[i] &= i < allowed->size() ? static_cast<uint32_t>((*allowed)[i]) : 0;
  }
  if (!params_->allowed_tokens) return {};
  std::vector<uint32_t> listed(mask.size());
  for (const Token token : *params_->allowed_tokens)
    listed[static_cast<size_t>(token) / 32] |= uint32_t{1} << (token % 32);
  for (size_t i = 0; i < mask.size(); ++i) mask[i] &= listed[i];
  return {};
}

Result<bool> TokenSampler::fulfills(Token token) const {
  if (!matcher_) return false;
  grammar::Matcher next = *matcher_;
  if (const Status taken = next.accept(token); !taken) return taken.error();
  return next.ended();
}

std::optional<Token> TokenSampler::forced() {
  const bool needs_logits = wanted_logprobs().has_value() || processors_.active();
  if (!matcher_ || matcher_->ended() || violation_ || needs_logits || plain_sampling() == nullptr)
    return std::nullopt;
  if (next_mask_.empty()) {
    next_mask_.resize(matcher_->mask_words());
    const Result<bool> filled = matcher_->fill(next_mask_);
    if (!filled || !*filled) {
      next_mask_.clear();
      return std::nullopt;
    }
  }
  std::optional<Token> only;
  for (size_t word = 0; word < next_mask_.size(); ++word) {
    const auto bits = static_cast<uint32_t>(next_mask_[word]);
    if (bits == 0) continue;
    if (only || !std::has_single_bit(bits)) return std::nullopt;
    only = static_cast<Token>(word * 32 + static_cast<size_t>(std::countr_zero(bits)));
  }
  return only && *only < vocab_ ? only : std::nullopt;
}

Result<Distribution> TokenSampler::distribution(std::span<float> logits, Workspace& workspace) const {
  const request::Sampling* sampling = request::sampling_of(*params_);
  SLUICE_CHECK(sampling != nullptr);
  const Result<float> maximum = process(logits, workspace);
  if (!maximum.ok()) return maximum.error();
  return filter(logits, *maximum, *sampling, workspace);
}

Result<request::Sampled> TokenSampler::sample(std::span<float> logits, Workspace& workspace) const {
  const request::Sampling* sampling = request::sampling_of(*params_);
  SLUICE_CHECK(sampling != nullptr);
  const std::optional<int> wanted = wanted_logprobs();
  std::optional<RowLogprobs> row;
  if (wanted) {
    Result<RowLogprobs> computed = RowLogprobs::of(logits, *wanted, workspace.buffer);
    if (!computed.ok()) return computed.error();
    row = std::move(*computed);
    workspace.raw.assign(logits.begin(), logits.end());
  }
  const Result<Distribution> sampled_of = distribution(logits, workspace);
  if (!sampled_of.ok()) return sampled_of.error();
  const Token token = pick(*sampled_of, uniform(next_random(0)));
  if (row) return row->report(token, workspace.raw[token]);
  return request::Sampled{.token = token};
}

Result<std::vector<ScoredToken>> TokenSampler::beam_candidates(std::span<float> logits, int count,
                                                               Workspace& workspace) const {
  const Result<float> raw_maximum = row_maximum(logits);
  if (!raw_maximum.ok()) return raw_maximum.error();
  if (std::isfinite(*raw_maximum)) {
    const float log_total = static_cast<float>(log_sum_exp(logits, *raw_maximum));
    for (float& logit : logits) logit -= log_total;
  }
  const Result<float> maximum = process(logits, workspace);
  if (!maximum.ok()) return maximum.error();
  return top_tokens(logits, static_cast<size_t>(count), workspace.buffer);
}

Result<std::vector<ScoredToken>> TokenSampler::likeliest(std::span<float> logits, int count,
                                                         Workspace& workspace) const {
  const Result<float> maximum = process(logits, workspace);
  if (!maximum.ok()) return maximum.error();
  const double log_total = log_sum_exp(logits, *maximum);
  std::vector<ScoredToken> top = top_tokens(logits, static_cast<size_t>(count), workspace.buffer);
  for (ScoredToken& entry : top) entry.score = static_cast<float>(std::exp(entry.score - log_total));
  return top;
}

bool TokenSampler::ends(Token token) const {
  return std::binary_search(end_tokens().begin(), end_tokens().end(), token);
}

TokenSampler TokenSampler::fork(uint32_t choice) const {
  TokenSampler child = *this;
  child.choice_ = choice;
  return child;
}

Error no_token_left(size_t position) {
  return {ErrorCode::InvalidArgument,
          fmt::format("the request's constraints leave no token to choose at output position {}", position)};
}

std::vector<size_t> best_choices(std::span<const double> cumulative_logprobs, size_t n) {
  std::vector<size_t> order(cumulative_logprobs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return cumulative_logprobs[a] > cumulative_logprobs[b]; });
  order.resize(std::min(n, order.size()));
  return order;
}

}  // namespace sluice::sampling

#include "runtime/sequences/sampled.h"

#include <algorithm>
#include <utility>

#include "runtime/overlapped_step_runner.h"
#include "sampling/contrastive.h"

namespace sluice::runtime {

SampledSequence::SampledSequence(std::shared_ptr<const request::Request> request,
                                 const sampling::SequenceStart& start, TokenSlots* slots,
                                 std::unique_ptr<Drafter> drafter)
    : request_(std::move(request)),
      tokens_(request_->prompt),
      sampler_(start),
      slots_(nullptr),
      drafter_(std::move(drafter)) {
  if (slots == nullptr) return;
  std::optional<DeviceLogitProcessor> edits;
  if (!request::needs_host_sampling(request_->sampling()) && sample_args(sampler_, 0, 0))
    edits = DeviceLogitProcessor::of(*start.params, start, sampler_.end_tokens());
  if (edits) {
    edits_ = std::move(*edits);
    slots_ = slots;
    slot_ = slots->take();
  }
  if (slot_.number() == 0) drafter_.reset();
}

SampledSequence::SampledSequence(const SampledSequence& parent, int choice)
    : request_(parent.request_),
      tokens_(parent.tokens_),
      sampler_(parent.sampler_.fork(static_cast<uint32_t>(choice))),
      edits_(parent.edits_),
      slots_(parent.slots_),
      drafter_(parent.drafter_ ? std::make_unique<Drafter>(*parent.drafter_) : nullptr) {
  if (slots_ == nullptr) return;
  slot_ = slots_->take();
  if (slot_.number() == 0) drafter_.reset();
}

std::unique_ptr<SampledSequence> SampledSequence::fork(int choice) const {
  return std::unique_ptr<SampledSequence>(new SampledSequence(*this, choice));
}

StepNeed SampledSequence::need(size_t lane, const request::Work& work) const {
  StepNeed need;
  need.contrast = std::holds_alternative<request::ContrastiveDecoding>(request_->sampling().method);
  if (work.sample_from >= work.end) return need;
  need.logits = PromptLogprobs::range(*request_, work);
  if (!is_last(lane, work)) return need;
  // The token stands beside the log-probabilities of the prompt in one outcome.
  const bool on_host = slot_.number() == 0 || need.logits.size() > 0;
  need.last = on_host ? StepNeed::Last::Host : StepNeed::Last::Device;
  need.drafts = static_cast<int>(work.drafts.size());
  need.attention = request_->sampling().prompt_attention;
  if (on_host || need.drafts > 0) return need;
  need.how = *sample_args(sampler_, pending_, slot_.number());
  edits_.fill(need.how, sampler_.output().size(), pending_);
  need.edits = edits_.list();
  need.masked = sampler_.has_mask();
  return need;
}

// Behind the token that a step in flight samples the constraint may leave no choice: the tokens that it forces are there
// before the row behind that token is, and nothing is sampled from the row.
bool SampledSequence::fill_mask(const request::Work& work, std::span<uint32_t> mask) {
  const bool over = failed_ || sampler_.violation() || sampler_.fulfilled();
  if (over || static_cast<size_t>(work.known_end()) != tokens_.size()) {
    --pending_;
    return false;
  }
  if (Status filled = sampler_.fill_mask(mask); !filled) failed_ = filled.error();
  return true;
}

void SampledSequence::read_prompt(const PromptRows& rows, sampling::Workspace& workspace) {
  if (failed_) return;
  if (Status read = prompt_.read(*request_, rows, workspace.buffer); !read) failed_ = read.error();
}

Result<request::Sampled> SampledSequence::sample(const HostRow& row, sampling::Workspace& workspace) {
  if (const auto* method = std::get_if<request::ContrastiveDecoding>(&request_->sampling().method)) {
    if (row.contrast.empty())
      return Error{ErrorCode::InvalidArgument, "contrastive decoding needs a second model (--amateur)",
                   "contrastive_decoding"};
    if (Status status = sampling::combine_contrastive(row.logits, row.contrast, *method); !status)
      return status.error();
  }
  return sampler_.sample(row.logits, workspace);
}

void SampledSequence::note_submitted(const request::Work& work) {
  ++pending_;
  if (drafter_) drafter_->note_submitted(work.drafts);
}

void SampledSequence::take(Token token) {
  tokens_.push_back(token);
  sampler_.accept(token);
  edits_.accept(token);
}

// Those that are being verified.
std::span<const Token> SampledSequence::drafts() const {
  return drafter_ ? drafter_->verified() : std::span<const Token>();
}

// Whether the row behind the last of the step's tokens counts: that token was the draft that the row was computed with.
bool SampledSequence::goes_on(size_t taken) const {
  return taken <= drafts().size() && drafts()[taken - 1] == tokens_.back() && !sampler_.fulfilled() &&
         !sampler_.ends(tokens_.back());
}

// For measurements: the draft in the place of the token, or anything else than it, as a coin falls.
void SampledSequence::force(size_t index, Token& token) const {
  constexpr uint64_t kCoin = 0x5EC0A11CE5EC0A11u;
  if (index >= drafts().size() || !drafter_->forced_acceptance()) return;
  sampling::RandomAt at = sampler_.next_random(0);
  at.seed ^= kCoin;
  const Token draft = drafts()[index];
  if (sampling::uniform(at) < *drafter_->forced_acceptance()) {
    token = draft;
  } else if (token == draft) {
    token = draft == 0 ? 1 : draft - 1;
  }
}

// The drafts before a row are in the sampler while it is asked about the row. Behind one that cannot follow nothing counts.
void SampledSequence::verify(const request::Work& work, RowSampling& rows) {
  if (drafter_) drafter_->note_submitted(work.drafts);
  if (failed_ || sampler_.violation()) return;
  DeviceLogitProcessor edits = edits_;
  size_t taken = 0;
  for (size_t i = 0; i <= work.drafts.size() && !sampler_.fulfilled(); ++i) {
    kernels::SampleArgs how = *sample_args(sampler_, 0, 0);
    edits.fill(how, sampler_.output().size(), 0);
    rows.add(how, edits.list());
    const Token next = i < work.drafts.size() ? work.drafts[i] : -1;
    bool allowed = next >= 0 && !sampler_.ends(next);
    if (sampler_.has_mask()) {
      const std::span<uint32_t> mask = rows.add_mask();
      const Status filled = sampler_.fill_mask(mask);
      if (!filled && i == 0) failed_ = filled.error();
      if (!filled) break;
      allowed = allowed && (mask[static_cast<size_t>(next) / 32] >> (next % 32) & 1) != 0;
    }
    if (!allowed) break;
    sampler_.accept(next);
    edits.accept(next);
    ++taken;
  }
  if (taken > 0) sampler_.rollback(taken);
}

void SampledSequence::guess_on_device(int ahead, int slot, RowSampling& rows) const {
  kernels::SampleArgs how = *sample_args(sampler_, ahead, slot);
  edits_.fill(how, sampler_.output().size() + static_cast<size_t>(ahead), 0);
  how.logprobs = -1;
  rows.add(how, edits_.list());
}

// A token from each row, sampled by the device or here, up to the first that is not the draft. What went wrong behind the
// first token is the answer to the next work, as it would be without drafts.
Status SampledSequence::take_rows(const StepRows& rows, request::Tokens& out) {
  const size_t count = std::max(rows.sampled.size(), rows.last.size());
  for (size_t i = 0; i < count; ++i) {
    Result<request::Sampled> sampled = rows.sampled.empty()
                                           ? sample(rows.last[i], rows.workspace)
                                           : sampled_from(rows.sampled[i], sampler_.output().size());
    if (!sampled) {
      failed_ = sampled.error();
      break;
    }
    force(i, sampled->token);
    take(sampled->token);
    if (sampler_.violation()) {
      failed_ = *sampler_.violation();
      break;
    }
    out.tokens.push_back(std::move(*sampled));
    out.ended = sampler_.fulfilled();
    if (!goes_on(out.tokens.size())) break;
  }
  if (out.tokens.empty()) return *failed_;
  return {};
}

// Tokens that the constraint leaves no choice about: they run with the sampled one in the next step.
void SampledSequence::take_forced(request::Tokens& out) {
  constexpr size_t kMostForced = 64;
  const auto most = static_cast<size_t>(request_->sampling().max_tokens);
  while (!failed_ && out.tokens.size() < kMostForced && sampler_.output().size() < most) {
    const std::optional<Token> next = sampler_.forced();
    if (!next || sampler_.ends(*next)) return;
    take(*next);
    failed_ = sampler_.violation();
    if (failed_) return;
    out.tokens.push_back({.token = *next});
    out.ended = sampler_.fulfilled();
  }
}

// Rows that nothing was sampled from, as the draft before them was wrong.
void SampledSequence::observe_behind(const StepRows& rows, std::span<const Token> drafts, size_t used) {
  std::vector<Proposer::Seen> seen;
  const auto likeliest = [&](size_t i) {
    if (!rows.sampled.empty()) return rows.sampled[i].token;
    const std::span<const float> row = rows.last[i].logits;
    return static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin());
  };
  const size_t count = std::max(rows.sampled.size(), rows.last.size());
  for (size_t i = used; i < count && i <= drafts.size(); ++i) seen.push_back({drafts[i - 1], likeliest(i)});
  drafter_->observe(seen);
}

std::optional<Token> SampledSequence::guess(std::span<float> logits, sampling::Workspace& workspace) {
  if (sampler_.fulfilled() || sampler_.violation()) return std::nullopt;
  if (guessed_ > 0 && sampler_.ends(sampler_.output().back())) return std::nullopt;
  const Result<request::Sampled> sampled = sampler_.sample(logits, workspace);
  if (!sampled) return std::nullopt;
  sampler_.accept(sampled->token);
  ++guessed_;
  return sampled->token;
}

void SampledSequence::forget_guesses() {
  if (guessed_ > 0) sampler_.rollback(std::exchange(guessed_, 0));
}

std::optional<request::Outcome> SampledSequence::consume(const StepRows& rows) {
  const bool samples = !rows.sampled.empty() || !rows.last.empty();
  pending_ -= samples ? 1 : 0;
  if (failed_) return request::Outcome{{}, *failed_, prompt_.take()};
  request::Outcome outcome{{}, request::Tokens{}, prompt_.take(), attention_.take()};
  if (!samples) return outcome;
  auto& out = std::get<request::Tokens>(outcome.result);
  if (Status status = take_rows(rows, out); !status) {
    outcome.result = status.error();
    return outcome;
  }
  const size_t used = out.tokens.size();
  take_forced(out);
  if (!drafter_) return outcome;
  const std::vector<Token> guesses(drafts().begin(), drafts().end());
  out.verified = drafter_->take(out.tokens, used - 1);
  if (drafter_->observes() && out.tokens.size() == used) observe_behind(rows, guesses, used);
  out.drafts = drafter_->propose();
  return outcome;
}

}  // namespace sluice::runtime

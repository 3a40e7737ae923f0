// A sequence that samples its own tokens, on the device where that can, else on the host.
#pragma once

#include <memory>
#include <vector>

#include "runtime/device_logit_processor.h"
#include "runtime/sequences/prompt_attention.h"
#include "runtime/sequences/prompt_logprobs.h"
#include "runtime/sequences/sequence.h"
#include "runtime/speculation/drafter.h"
#include "runtime/token_slots.h"
#include "sampling/token_sampler.h"

namespace sluice::runtime {

class SampledSequence final : public Sequence {
 public:
  // `slots`: where the device keeps sampled tokens; null: it samples none. `drafter`: guesses what follows; null: nobody
  // does. Where the device samples tokens but none of this sequence, nothing is guessed.
  SampledSequence(std::shared_ptr<const request::Request> request, const sampling::SequenceStart& start,
                  TokenSlots* slots, std::unique_ptr<Drafter> drafter = nullptr);
  // Another choice of the same request, before any token of either.
  std::unique_ptr<SampledSequence> fork(int choice) const;

  // Of the request's constraint, where it was not there when the sequence came. Before any token.
  void set_grammar(std::shared_ptr<const grammar::CompiledGrammar> grammar) {
    sampler_.set_grammar(std::move(grammar));
  }

  std::span<const Token> tokens(size_t) const override { return tokens_; }
  int device_slot() const override { return slot_.number(); }
  PromptAttention* attention() override { return &attention_; }
  const request::Request* request() const override { return request_.get(); }
  StepNeed need(size_t lane, const request::Work& work) const override;
  void note_submitted(const request::Work& work) override;
  bool fill_mask(const request::Work& work, std::span<uint32_t> mask) override;
  void read_prompt(const PromptRows& rows, sampling::Workspace& workspace) override;
  std::optional<request::Outcome> consume(const StepRows& rows) override;
  void verify(const request::Work& work, RowSampling& rows) override;
  void guess_on_device(int ahead, int slot, RowSampling& rows) const override;
  std::optional<Token> guess(std::span<float> logits, sampling::Workspace& workspace) override;
  void forget_guesses() override;

 private:
  SampledSequence(const SampledSequence& parent, int choice);
  Result<request::Sampled> sample(const HostRow& row, sampling::Workspace& workspace);
  void take(Token token);
  bool goes_on(size_t taken) const;
  std::span<const Token> drafts() const;
  Status take_rows(const StepRows& rows, request::Tokens& out);
  void force(size_t index, Token& token) const;
  void take_forced(request::Tokens& out);
  void observe_behind(const StepRows& rows, std::span<const Token> drafts, size_t used);

  std::shared_ptr<const request::Request> request_;
  std::vector<Token> tokens_;
  sampling::TokenSampler sampler_;
  DeviceLogitProcessor edits_;  // of the tokens that the device samples
  TokenSlots::Slot slot_;
  TokenSlots* slots_;
  PromptLogprobs prompt_;
  PromptAttention attention_;
  std::unique_ptr<Drafter> drafter_;
  size_t guessed_ = 0;  // tokens that the sampler has accepted as guesses
};

}  // namespace sluice::runtime

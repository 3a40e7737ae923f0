#include "runtime/speculation/drafter.h"

#include <algorithm>

namespace sluice::runtime {

Drafter::Drafter(std::unique_ptr<Proposer> proposer, DraftControl& control, std::span<const Token> prompt)
    : proposer_(std::move(proposer)), control_(control) {
  proposer_->append(prompt);
}

void Drafter::take(std::span<const request::Sampled> tokens, size_t accepted) {
  for (const request::Sampled& sampled : tokens) proposer_->append({&sampled.token, 1});
  if (!verified_.empty())
    control_.note_verified(match_, static_cast<int>(verified_.size()), static_cast<int>(accepted));
  verified_.clear();
}

std::vector<Token> Drafter::propose() {
  std::vector<Token> drafts;
  match_ = proposer_->propose(control_.most(), drafts);
  drafts.resize(std::min(drafts.size(), static_cast<size_t>(control_.worth(match_))));
  return drafts;
}

std::unique_ptr<Drafter> Speculator::drafter(const request::Request& request) {
  if (with_ == Speculation::Off || request::uses_contrast_model(request)) return nullptr;
  std::unique_ptr<Proposer> proposer =
      with_ == Speculation::Ngram ? make_ngram_proposer() : make_suffix_proposer();
  return std::make_unique<Drafter>(std::move(proposer), control_, request.prompt);
}

}  // namespace sluice::runtime

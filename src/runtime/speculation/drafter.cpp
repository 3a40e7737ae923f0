#include "runtime/speculation/drafter.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

namespace sluice::runtime {

namespace {

constexpr int kDraftModelMatch = 4;  // what its guesses count as among those by length of match

}  // namespace

Drafter::Drafter(std::vector<Source> sources, Shared shared, std::span<const Token> prompt)
    : sources_(std::move(sources)), shared_(std::move(shared)) {
  for (Source& source : sources_) {
    observes_ |= source.by == Speculation::Lookahead;
    if (source.proposer) source.proposer->append(prompt);
  }
}

Drafter::Drafter(const Drafter& other) : shared_(other.shared_), observes_(other.observes_) {
  for (const Source& source : other.sources_)
    sources_.push_back({source.by, source.proposer ? source.proposer->clone() : nullptr});
}

// An answer that there is no memory for is not kept.
Drafter::~Drafter() {
  if (!shared_.answers || answer_.empty()) return;
  try {
    shared_.pool.add(shared_.answers, answer_);
  } catch (const std::bad_alloc&) {
    return;
  }
}

request::Verified Drafter::take(std::span<const request::Sampled> tokens, size_t accepted) {
  for (const request::Sampled& sampled : tokens) {
    answer_.push_back(sampled.token);
    for (Source& source : sources_)
      if (source.proposer) source.proposer->append({&sampled.token, 1});
  }
  if (verified_.empty()) return {};
  const request::Verified verified{guess_.by, static_cast<int>(verified_.size()), static_cast<int>(accepted),
                                   static_cast<float>(choice_.expected), static_cast<float>(choice_.cost)};
  shared_.control.note_verified(guess_.match, verified);
  verified_.clear();
  return verified;
}

void Drafter::observe(std::span<const Proposer::Seen> seen) {
  for (Source& source : sources_)
    if (source.proposer) source.proposer->observe(seen);
}

std::vector<Token> Drafter::propose() {
  const int most = shared_.control.most();
  std::vector<Guess> guesses;
  std::vector<std::vector<Token>> drafts;
  for (Source& source : sources_) {
    std::vector<Token> guessed;
    int match = kDraftModelMatch;
    if (source.proposer) {
      match = source.proposer->propose(most, guessed);
    } else {
      guessed.assign(static_cast<size_t>(most), request::kDraftLater);
    }
    if (guessed.empty()) continue;
    guesses.push_back({source.by, match, static_cast<int>(guessed.size())});
    drafts.push_back(std::move(guessed));
  }
  choice_ = shared_.control.choose(guesses);
  if (choice_.drafts == 0) return {};
  guess_ = guesses[choice_.guess];
  drafts[choice_.guess].resize(static_cast<size_t>(choice_.drafts));
  return std::move(drafts[choice_.guess]);
}

namespace {

Error not_loaded(Speculation with) {
  const char* missing =
      with == Speculation::Draft ? "there is no draft model, which --speculate draft:MODEL names"
      : with == Speculation::Mtp ? "the model's head is not loaded, which --speculate mtp does"
                                 : "there is no such head, which --speculate eagle3:FOLDER names";
  return {ErrorCode::InvalidArgument, fmt::format("speculate is {}; {}", name(with), missing), "speculate"};
}

}  // namespace

// Lookahead is left out of what Auto chooses from: it always has a guess, and its windows cost more than they bring.
Result<std::unique_ptr<Drafter>> Speculator::drafter(const request::Request& request) {
  const Speculation with = request.sampling().speculate.value_or(with_);
  if (with == Speculation::Off || request::uses_contrast_model(request)) return std::unique_ptr<Drafter>();
  if (request::drafts_by_model(with) && with != model_) return not_loaded(with);
  Drafter::Shared shared{control_, pool_, nullptr, forced_acceptance_};
  std::vector<Drafter::Source> sources;
  const auto wants = [&](Speculation one) { return with == one || with == Speculation::Auto; };
  if (wants(Speculation::Suffix)) {
    shared.answers = pool_.of(request.cache_salt);
    sources.push_back({Speculation::Suffix, make_suffix_proposer(shared.answers)});
  }
  if (wants(Speculation::Ngram)) sources.push_back({Speculation::Ngram, make_ngram_proposer()});
  if (model_ != Speculation::Off && wants(model_)) sources.push_back({model_, nullptr});
  if (with == Speculation::Lookahead) sources.push_back({Speculation::Lookahead, make_lookahead_proposer()});
  return std::make_unique<Drafter>(std::move(sources), std::move(shared), request.prompt);
}

}  // namespace sluice::runtime

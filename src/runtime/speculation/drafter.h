// The drafts of one sequence: guessed, handed out, and judged once they are verified.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "request/request.h"
#include "request/step.h"
#include "runtime/speculation/answer_pool.h"
#include "runtime/speculation/draft_control.h"
#include "runtime/speculation/proposer.h"

namespace sluice::runtime {

using request::Speculation;

struct SpeculationOptions {
  Speculation with = Speculation::Off;  // for requests that do not say
  DraftControlOptions control;
  // For measurements alone: a draft is right with this probability, whatever the model says. Answers are of no use.
  std::optional<double> forced_acceptance{};
};

class Drafter {
 public:
  // Where guesses come from.
  struct Source {
    Speculation by = Speculation::Off;
    std::unique_ptr<Proposer> proposer;  // null: a model, when the step runs
  };
  struct Shared {
    DraftControl& control;  // outlives the drafter, as the pool does
    AnswerPool& pool;
    std::shared_ptr<AnswerPool::Text> answers;  // where its own goes in the end; null: nowhere
    std::optional<double> forced_acceptance{};  // as in SpeculationOptions
  };
  Drafter(std::vector<Source> sources, Shared shared, std::span<const Token> prompt);
  Drafter(const Drafter& other);
  ~Drafter();

  // The sequence grew by tokens, of which the first `accepted` had been drafts. Returns what that says of the drafts.
  request::Verified take(std::span<const request::Sampled> tokens, size_t accepted);
  // Whether rows behind a wrong draft are of interest.
  bool observes() const { return observes_; }
  void observe(std::span<const Proposer::Seen> seen);
  // What may follow, for the next work.
  std::vector<Token> propose();
  // These are being verified.
  void note_submitted(std::span<const Token> drafts) { verified_.assign(drafts.begin(), drafts.end()); }
  std::span<const Token> verified() const { return verified_; }
  std::optional<double> forced_acceptance() const { return shared_.forced_acceptance; }

 private:
  std::vector<Source> sources_;
  Shared shared_;
  bool observes_ = false;
  std::vector<Token> verified_;
  Guess guess_;                  // that the drafts are of, ...
  DraftControl::Choice choice_;  // ... and how many were chosen
  std::vector<Token> answer_;
};

// Makes the drafters of an executor's sequences.
class Speculator {
 public:
  // `model`: what the model that guesses is; Off: there is none.
  Speculator(const SpeculationOptions& options, Speculation model)
      : with_(options.with),
        model_(model),
        forced_acceptance_(options.forced_acceptance),
        control_(options.control) {}

  // Null where nothing is to be guessed for such a request; an error where it asks for a proposer that is not there.
  Result<std::unique_ptr<Drafter>> drafter(const request::Request& request);
  DraftControl& control() { return control_; }

 private:
  Speculation with_;
  Speculation model_;
  std::optional<double> forced_acceptance_;
  DraftControl control_;
  AnswerPool pool_;
};

}  // namespace sluice::runtime

// The drafts of one sequence: guessed, handed out, and judged once they are verified.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "request/request.h"
#include "request/step.h"
#include "runtime/speculation/draft_control.h"
#include "runtime/speculation/proposer.h"

namespace sluice::runtime {

enum class Speculation : uint8_t { Off, Ngram, Suffix };

struct SpeculationOptions {
  Speculation with = Speculation::Off;
  DraftControlOptions control;
};

class Drafter {
 public:
  // The control outlives it.
  Drafter(std::unique_ptr<Proposer> proposer, DraftControl& control, std::span<const Token> prompt);
  Drafter(const Drafter& other) : proposer_(other.proposer_->clone()), control_(other.control_) {}

  // The sequence grew by tokens, of which the first `accepted` had been drafts.
  void take(std::span<const request::Sampled> tokens, size_t accepted);
  // What may follow, for the next work.
  std::vector<Token> propose();
  // These are being verified.
  void note_submitted(std::span<const Token> drafts) { verified_.assign(drafts.begin(), drafts.end()); }
  std::span<const Token> verified() const { return verified_; }

 private:
  std::unique_ptr<Proposer> proposer_;
  DraftControl& control_;
  std::vector<Token> verified_;
  int match_ = 0;  // that the drafts were found by
};

// Makes the drafters of an executor's sequences.
class Speculator {
 public:
  explicit Speculator(const SpeculationOptions& options) : with_(options.with), control_(options.control) {}

  // Null where nothing is to be guessed for such a request.
  std::unique_ptr<Drafter> drafter(const request::Request& request);
  DraftControl& control() { return control_; }

 private:
  Speculation with_;
  DraftControl control_;
};

}  // namespace sluice::runtime

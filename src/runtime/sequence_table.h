// The sequences that the executor knows, from admission to retirement.
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/grammar_store.h"
#include "models/spec.h"
#include "request/step.h"
#include "runtime/sequences/sampled.h"
#include "runtime/sequences/search_group.h"
#include "runtime/sequences/sequence.h"

namespace sluice::runtime {

class SequenceTable {
 public:
  struct Options {
    int vocab = 0, dim = 0;
    std::vector<Token> eos_tokens;
    uint64_t entropy = 0;         // seeds the requests that bring no seed
    TokenSlots* slots = nullptr;  // of the device that samples tokens; null: the host samples all
    std::shared_ptr<grammar::GrammarStore> grammars = nullptr;  // null: constraints fail
    Speculator* speculator = nullptr;                           // null: nothing is guessed
  };
  explicit SequenceTable(Options options) : options_(std::move(options)) {}

  // Retires, admits, forks and names lanes as the step says. A sequence that there is no memory for fails alone.
  void apply(const request::Step& step);

  struct Entry {
    Sequence* sequence = nullptr;
    SeqId owner;      // names it in outcomes: the sequence itself, or its group
    size_t lane = 0;  // of the group
  };
  // REQUIRES: the sequence is known.
  const Entry& at(SeqId seq) const { return entries_.at(seq); }
  // Null where the sequence or group has been retired.
  Sequence* find(SeqId owner) const;
  void clear();

 private:
  void admit(const request::Admission& admission);
  void fork(const request::Fork& fork);
  void name_lanes(const request::Lanes& lanes);
  void retire(SeqId seq);
  void add(SeqId seq, std::unique_ptr<Sequence> sequence);
  uint64_t seed_of(const request::Request& request) const;
  // Gives the sequences whose gate has opened their grammars.
  void set_late_grammars();
  // Null where the request has no constraint.
  Result<grammar::GrammarStore::Grammar> grammar_of(const request::Request& request) const;
  // Null where nothing is guessed for it; an error where it asks for a proposer that is not there.
  Result<std::unique_ptr<Drafter>> drafter_of(const request::Request& request) const;

  struct Owned {
    std::unique_ptr<Sequence> sequence;
    SearchGroup* group = nullptr;     // the sequence, where it has lanes
    SampledSequence* solo = nullptr;  // the sequence, where it can be forked
    std::vector<SeqId> lanes;         // of a group, by lane
  };
  Options options_;
  std::unordered_map<SeqId, Owned> owned_;    // by owner
  std::unordered_map<SeqId, Entry> entries_;  // by sequence, lanes among them
  // Sequences whose grammar was still compiled when they came.
  std::vector<std::pair<SeqId, std::shared_ptr<const request::Request>>> late_;
};

}  // namespace sluice::runtime

#include "runtime/sequence_table.h"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "base/check.h"
#include "base/system/memory.h"
#include "grammar/grammar_gate.h"
#include "runtime/sequences/pooled.h"

namespace sluice::runtime {

namespace {

// There was no memory for it: all its work fails.
class StarvedSequence final : public Sequence {
 public:
  StarvedSequence() { failed_ = out_of_memory(); }
  std::span<const Token> tokens(size_t) const override { return {}; }
  StepNeed need(size_t, const request::Work&) const override { return {}; }
  void read_prompt(const PromptRows&, sampling::Workspace&) override {}
  std::optional<request::Outcome> consume(const StepRows&) override { return std::nullopt; }
};

}  // namespace

void SequenceTable::apply(const request::Step& step) {
  for (const SeqId seq : step.retire) retire(seq);
  for (const request::Admission& admission : step.admit) {
    try {
      admit(admission);
    } catch (const std::bad_alloc&) {
      retire(admission.seq);
      add(admission.seq, std::make_unique<StarvedSequence>());
    }
  }
  if (!late_.empty()) set_late_grammars();
  for (const request::Fork& entry : step.forks) {
    try {
      fork(entry);
    } catch (const std::bad_alloc&) {
      retire(entry.child);
      add(entry.child, std::make_unique<StarvedSequence>());
    }
  }
  for (const request::Lanes& lanes : step.lanes) name_lanes(lanes);
}

Sequence* SequenceTable::find(SeqId owner) const {
  const auto found = owned_.find(owner);
  return found == owned_.end() ? nullptr : found->second.sequence.get();
}

void SequenceTable::clear() {
  late_.clear();
  entries_.clear();
  owned_.clear();
}

uint64_t SequenceTable::seed_of(const request::Request& request) const {
  const request::Sampling* sampling = request::sampling_of(request.sampling());
  if (sampling != nullptr && sampling->seed) return *sampling->seed;
  return (options_.entropy ^ request.id.value) * 0x9E3779B97F4A7C15u;
}

void SequenceTable::add(SeqId seq, std::unique_ptr<Sequence> sequence) {
  entries_[seq] = {sequence.get(), seq, 0};
  owned_[seq].sequence = std::move(sequence);
}

// The gate of a request has its grammar, or whoever sent it holds the one in the store; compiling it here, where nobody
// does, makes the whole step wait.
Result<grammar::GrammarStore::Grammar> SequenceTable::grammar_of(const request::Request& request) const {
  const std::optional<request::Constraint>& constraint = request.sampling().constraint;
  if (!constraint) return grammar::GrammarStore::Grammar();
  if (options_.grammars == nullptr)
    return Error{ErrorCode::Unsupported, "a constraint needs a tokenizer, which this model does not have"};
  if (const auto* gate = dynamic_cast<const grammar::GrammarGate*>(request.gate.get()))
    if (grammar::GrammarStore::Grammar given = gate->grammar()) return given;
  if (grammar::GrammarStore::Grammar found = options_.grammars->find(*constraint)) return found;
  return options_.grammars->get(*constraint);
}

void SequenceTable::set_late_grammars() {
  std::erase_if(late_, [&](const auto& late) {
    const auto& [seq, request] = late;
    const auto found = owned_.find(seq);
    if (found == owned_.end()) return true;
    if (request->gate->state() != request::Gate::State::Open) return false;
    Owned& owned = found->second;
    try {
      const Result<grammar::GrammarStore::Grammar> grammar = grammar_of(*request);
      if (!grammar) owned.sequence->fail(grammar.error());
      const bool given = grammar && *grammar != nullptr;
      if (given && owned.solo != nullptr) owned.solo->set_grammar(*grammar);
      if (given && owned.group != nullptr) owned.group->set_grammar(*grammar);
    } catch (const std::bad_alloc&) {
      owned.sequence->fail(out_of_memory());
    }
    return true;
  });
}

Result<std::unique_ptr<Drafter>> SequenceTable::drafter_of(const request::Request& request) const {
  if (options_.speculator == nullptr) return std::unique_ptr<Drafter>();
  return options_.speculator->drafter(request);
}

void SequenceTable::admit(const request::Admission& admission) {
  const request::Request& request = *admission.request;
  if (request.pooling() != nullptr)
    return add(admission.seq, std::make_unique<PooledSequence>(admission.request, options_.dim));
  const bool late = request.gate && request.gate->state() != request::Gate::State::Open;
  if (late) late_.emplace_back(admission.seq, admission.request);
  const Result<grammar::GrammarStore::Grammar> grammar =
      late ? grammar::GrammarStore::Grammar() : grammar_of(request);
  const sampling::SequenceStart start{
      .params = std::shared_ptr<const request::SamplingParams>(admission.request, &request.sampling()),
      .vocab = options_.vocab,
      .prompt = request.prompt,
      .eos_tokens = options_.eos_tokens,
      .seed = seed_of(request),
      .choice = 0,
      .grammar = grammar ? *grammar : nullptr};
  if (request::sampling_of(request.sampling()) != nullptr) {
    Result<std::unique_ptr<Drafter>> drafter = drafter_of(request);
    auto solo = std::make_unique<SampledSequence>(admission.request, start, options_.slots,
                                                  drafter ? std::move(*drafter) : nullptr);
    SampledSequence* parent = solo.get();
    add(admission.seq, std::move(solo));
    owned_.at(admission.seq).solo = parent;
    if (!grammar) parent->fail(grammar.error());
    if (!drafter) parent->fail(drafter.error());
    return;
  }
  auto group = std::make_unique<SearchGroup>(
      admission.request, make_search(request, {request.prompt, sampling::TokenSampler(start)}, options_.dim));
  SearchGroup* lanes = group.get();
  add(admission.seq, std::move(group));
  owned_.at(admission.seq).group = lanes;
  owned_.at(admission.seq).lanes = {admission.seq};
  if (!grammar) lanes->fail(grammar.error());
}

void SequenceTable::fork(const request::Fork& fork) {
  const SampledSequence* parent = owned_.at(fork.parent).solo;
  if (parent == nullptr) return add(fork.child, std::make_unique<StarvedSequence>());
  std::unique_ptr<SampledSequence> child = parent->fork(fork.choice);
  SampledSequence* solo = child.get();
  add(fork.child, std::move(child));
  owned_.at(fork.child).solo = solo;
}

void SequenceTable::retire(SeqId seq) {
  const auto found = owned_.find(seq);
  if (found != owned_.end()) {
    for (const SeqId lane : found->second.lanes) entries_.erase(lane);
    owned_.erase(found);
  }
  entries_.erase(seq);
}

void SequenceTable::name_lanes(const request::Lanes& lanes) {
  Owned& owned = owned_.at(lanes.group);
  SLUICE_CHECK(owned.group != nullptr);
  SLUICE_CHECK_EQ(lanes.lanes.size(), owned.group->lanes());
  for (const SeqId lane : owned.lanes) entries_.erase(lane);
  owned.lanes = lanes.lanes;
  for (size_t i = 0; i < lanes.lanes.size(); ++i)
    entries_[lanes.lanes[i]] = {owned.sequence.get(), lanes.group, i};
}

}  // namespace sluice::runtime

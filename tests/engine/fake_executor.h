// An executor without a device. Tokens are a hash of the tokens before them, so that they depend on nothing
// else; the KV of a position is the hash of all tokens up to it and of its set of rotary frequencies, really written to
// blocks, copied by moves and compared with what every later position would read. A wrong block table, a missed copy or a
// stale prefix is seen at once. Where drafts are asked for, it guesses the next tokens of each sequence, often wrongly, and
// leaves the KV of the wrong ones in the blocks.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "sched/executor.h"
#include "tests/engine/fake_model.h"

namespace sluice::sim {

using kv::KvManager;
using request::BlockMove;
using request::Outcome;
using request::RequestId;
using request::Step;

struct Faults {
  std::function<bool(SeqId)> request_fails = [](SeqId) { return false; };
  std::function<bool()> step_fails = [] { return false; };
  std::function<bool()> read_back_fails = [] { return false; };  // of one block, from a lower tier
};

class FakeExecutor : public sched::Executor {
 public:
  explicit FakeExecutor(const kv::KvManagerOptions& options, int depth = 1, sched::RopeSets rope = {})
      : options_(options), depth_(depth), rope_(rope) {
    reset_memory();
  }

  Faults faults;
  bool check_kv = true;
  int drafts = 0;  // most tokens that are guessed after each sampled one

  int depth() const override { return depth_; }

  void submit(const Step& step) override {
    expect(static_cast<int>(done_.size()) < depth_, "more steps than the depth allows");
    for (const SeqId seq : step.retire) retire(seq);
    for (const request::Admission& admission : step.admit) {
      expect(sequences_.try_emplace(admission.seq, *admission.request).second, "admitted twice");
      if (request::is_search(*admission.request))
        groups_[admission.seq] = {admission.request, {admission.seq}, {}};
      requests_[admission.seq] = {admission.request, 0};
    }
    for (const request::Fork& fork : step.forks) {
      expect(sequences_.contains(fork.parent), "forks an unknown sequence");
      sequences_[fork.child] = Sequence(*requests_.at(fork.parent).first);
      requests_[fork.child] = {requests_.at(fork.parent).first, fork.choice};
    }
    for (const request::Lanes& lanes : step.lanes) relabel(lanes);
    for (const BlockMove& move : step.moves) run_move(move);
    std::vector<Outcome> outcomes;
    for (size_t i = 0; i < step.work.size(); ++i) run(step, i, outcomes);
    for (auto& [seq, group] : groups_) finish_group(seq, group, step, outcomes);
    done_.push_back(std::move(outcomes));
    tokens_run_ += step.tokens();
  }

  Result<std::vector<Outcome>> collect() override {
    if (done_.empty()) return Error{ErrorCode::Internal, "nothing was submitted"};
    std::vector<Outcome> outcomes = std::move(done_.front());
    done_.pop_front();
    for (const Outcome& outcome : outcomes) uncollected_.erase(outcome.seq);
    if (faults.step_fails()) return Error{ErrorCode::Internal, "the device fell over"};
    return outcomes;
  }

  Status reset() override {
    sequences_.clear();
    requests_.clear();
    groups_.clear();
    done_.clear();
    uncollected_.clear();
    reset_memory();
    return {};
  }

  std::vector<int64_t> block_bytes() const override {
    return std::vector<int64_t>(options_.groups.size(), int64_t{8} * options_.block_size);
  }
  bool read_block(int group, request::Place place, std::span<std::byte> out) override {
    std::memcpy(out.data(), block(group, place), out.size());
    return true;
  }
  void write_blocks(std::span<const BlockMove> moves, std::span<const sched::BlockWrite> writes) override {
    for (const BlockMove& move : moves) run_move(move);
    for (const sched::BlockWrite& write : writes) {
      std::memcpy(block(write.group, {request::Tier::Device, write.block}), write.bytes.data(),
                  write.bytes.size());
      bad(write.group, write.block) = false;
    }
  }

  size_t sequences() const { return sequences_.size(); }
  // What was wrong with the steps, most basic first; empty: nothing.
  const std::string& complaint() const { return complaint_; }
  int64_t tokens_run() const { return tokens_run_; }
  int64_t accepted() const { return accepted_; }  // drafts that became tokens
  int64_t rejected() const { return rejected_; }

 private:
  struct Sequence {
    Sequence() = default;
    explicit Sequence(const Request& request)
        : tokens(request.prompt), prompt(static_cast<int>(request.prompt.size())) {
      for (size_t i = 0; i < tokens.size(); ++i)
        hashes.push_back(extend(hashes.empty() ? 1 : hashes.back(), request, i));
    }
    void append(Token token) {
      hashes.push_back(extend(hashes.empty() ? 1 : hashes.back(), token)), tokens.push_back(token);
    }
    std::vector<Token> tokens;
    std::vector<uint64_t> hashes;  // of tokens [0, i]
    int prompt = 0;                // its tokens
    uint64_t pooled = 0;           // of a request that wants a vector
    int pooled_rows = 0;
    bool lost = false;  // in its last work
    bool failed = false;
  };
  struct Group {
    std::shared_ptr<const Request> request;
    std::vector<SeqId> lanes;
    std::vector<Sequence> next;  // lanes of the last move, not named yet
  };

  bool expect(bool holds, std::string complaint) {
    if (!holds && complaint_.empty()) complaint_ = std::move(complaint);
    return holds;
  }

  void reset_memory() {
    memory_.clear();
    bad_.assign(options_.groups.size(), {});
    for (const kv::KvGroup& group : options_.groups) {
      auto& tiers = memory_.emplace_back();
      for (size_t tier = 0; tier < request::kTiers; ++tier) {
        tiers[tier].assign(static_cast<size_t>(group.blocks[tier] * options_.block_size), 0);
      }
    }
  }

  uint64_t* block(int group, request::Place place) {
    return memory_[static_cast<size_t>(group)][static_cast<size_t>(place.tier)].data() +
           int64_t{place.block.value} * options_.block_size;
  }

  bool& bad(int group, BlockId id) { return bad_[static_cast<size_t>(group)][id.value]; }

  void run_move(const BlockMove& move) {
    std::copy_n(block(move.group, move.from), options_.block_size, block(move.group, move.to));
    if (move.to.tier != request::Tier::Device) return;
    const bool copy = move.from.tier == request::Tier::Device;
    const bool broken = copy ? bad(move.group, move.from.block) : faults.read_back_fails();
    bad(move.group, move.to.block) = broken;
  }

  bool is_state(int group) const {
    return options_.groups[static_cast<size_t>(group)].holds == kv::KvGroup::Holds::State;
  }
  request::StateSlots slots_of(const Step& step, size_t index, int group) const {
    const request::Work& work = step.work[index];
    return request::StateSlots::of(step.tables.of(index, group), work.begin, work.end, options_.block_size,
                                   static_cast<int>(work.drafts.size()));
  }
  // Whether the state could not be read back; what comes of it is bad, too.
  bool starts_from_bad_state(const Step& step, size_t index, int group) {
    const request::StateSlots slots = slots_of(step, index, group);
    const bool found = slots.from != request::kNoBlock && bad(group, slots.from);
    for (const request::StateSlots::Save& save : slots.saves) bad(group, save.slot) = found;
    return found;
  }
  // The state is the hash of all tokens so far: checks the one that the work starts from, and leaves the others.
  void run_state(const Step& step, size_t index, int group, const Sequence& sequence) {
    const request::Work& work = step.work[index];
    const request::StateSlots slots = slots_of(step, index, group);
    const auto state = [&](BlockId slot) -> uint64_t& {
      return *block(group, {request::Tier::Device, slot});
    };
    const auto behind = [&](int position) {
      return mix(sequence.hashes[static_cast<size_t>(position)] + 77);
    };
    expect((slots.from == request::kNoBlock) == (work.begin == 0), "a state from nowhere");
    if (slots.from != request::kNoBlock)
      expect(state(slots.from) == behind(work.begin - 1), "sequence " + std::to_string(work.seq.value) +
                                                              " starts from a wrong state at " +
                                                              std::to_string(work.begin));
    for (const request::StateSlots::Save& save : slots.saves) state(save.slot) = behind(save.position - 1);
    expect(!slots.saves.empty() && slots.saves.back().position == work.end,
           "no slot for the state at the end of the work");
  }

  // True where the work would read content that could not be read back. What it would have written is bad, too.
  bool reads_bad_block(const Step& step, size_t index) {
    const request::Work& work = step.work[index];
    const int size = options_.block_size;
    bool found = false;
    for (int group = 0; group < step.tables.groups; ++group) {
      if (is_state(group)) {
        found |= starts_from_bad_state(step, index, group);
        continue;
      }
      const std::span<const BlockId> table = step.tables.of(index, group);
      const int window = options_.groups[static_cast<size_t>(group)].window;
      const int seen = window == 0 ? 0 : std::max(0, work.begin - window + 1);
      for (int i = seen / size; i * size < work.end; ++i) {
        const BlockId id = table[static_cast<size_t>(i)];
        if (i * size >= work.begin) bad(group, id) = false;  // written from its first slot on
        found |= id.value >= 0 && bad(group, id);
      }
    }
    for (int group = 0; found && group < step.tables.groups; ++group) {
      const std::span<const BlockId> table = step.tables.of(index, group);
      const int end = is_state(group) ? work.known_end() : work.end;
      for (int i = work.begin / size; i * size < end; ++i) {
        if (const BlockId id = table[static_cast<size_t>(i)]; id != request::kNoBlock) bad(group, id) = true;
      }
    }
    return found;
  }

  void retire(SeqId seq) {
    expect(requests_.contains(seq), "retires an unknown sequence");
    if (const auto group = groups_.find(seq); group != groups_.end()) {
      for (const SeqId lane : group->second.lanes) sequences_.erase(lane);
      groups_.erase(group);
    }
    sequences_.erase(seq);
    requests_.erase(seq);
  }

  void relabel(const request::Lanes& lanes) {
    Group& group = groups_.at(lanes.group);
    expect(group.next.size() == lanes.lanes.size(), "names other lanes than the last move had");
    for (const SeqId lane : group.lanes) sequences_.erase(lane);
    for (size_t i = 0; i < lanes.lanes.size(); ++i) sequences_[lanes.lanes[i]] = std::move(group.next[i]);
    group.lanes = lanes.lanes;
    group.next.clear();
  }

  // The set of rotary frequencies that the key at p must have where outputs of the work are read; the sequence has the
  // drafts.
  int wanted_set(const request::Work& work, const Sequence& sequence, int p) const {
    const auto size = static_cast<int>(sequence.tokens.size() - work.drafts.size());
    if (work.known_end() != size && work.sample_from == work.end)
      return rope_.of(std::max(work.rope_length, p + 1));
    if (rope_.outgrown == sched::RopeSets::Outgrown::Kept) return rope_.of(std::max(sequence.prompt, p + 1));
    return rope_.of(work.known_end() == size ? size : sequence.prompt);
  }

  // Writes the KV of [begin, end) and reads all that the last position can see. The sequence has the drafts.
  void run_kv(const Step& step, size_t index, const Sequence& sequence) {
    const request::Work& work = step.work[index];
    for (int group = 0; group < step.tables.groups; ++group) {
      if (is_state(group)) {
        run_state(step, index, group, sequence);
        continue;
      }
      const std::span<const BlockId> table = step.tables.of(index, group);
      const int window = options_.groups[static_cast<size_t>(group)].window;
      const auto slot = [&](int p) -> uint64_t& {
        static uint64_t nowhere = 0;
        const BlockId id = table[static_cast<size_t>(p / options_.block_size)];
        if (!expect(id.value >= 0, "a position that was given back")) return nowhere;
        return block(group, {request::Tier::Device, id})[p % options_.block_size];
      };
      const auto content = [&](int p, int set) {
        return mix(sequence.hashes[static_cast<size_t>(p)] + static_cast<uint64_t>(set));
      };
      for (int p = work.begin; p < work.end; ++p)
        slot(p) = content(p, rope_.of(std::max(work.rope_length, p + 1)));
      const int seen = window == 0 ? 0 : std::max(0, work.begin - window + 1);
      for (int p = check_kv ? seen : work.end; p < work.end; ++p) {
        expect(slot(p) == content(p, wanted_set(work, sequence, p)),
               "sequence " + std::to_string(work.seq.value) + " reads wrong content at " + std::to_string(p) +
                   " of group " + std::to_string(group));
      }
    }
  }

  void run(const Step& step, size_t index, std::vector<Outcome>& outcomes) {
    const request::Work& work = step.work[index];
    const auto found = sequences_.find(work.seq);
    if (!expect(found != sequences_.end(), "work for an unknown sequence")) return;
    Sequence& sequence = found->second;
    expect(work.begin < work.end, "empty work");
    if (sequence.failed) {
      outcomes.push_back({work.seq, Error{ErrorCode::Internal, "failed before"}, {}});
      return;
    }
    // Work that was submitted behind work that got lost may count on a token that never came.
    const auto known_end = static_cast<size_t>(work.known_end());
    const bool planned_too_far = sequence.lost && known_end > sequence.tokens.size();
    sequence.lost = reads_bad_block(step, index) || planned_too_far;
    if (sequence.lost) {
      if (!group_of(work.seq)) outcomes.push_back({work.seq, request::KvLost{}, {}});
      return;
    }
    if (!expect(known_end <= sequence.tokens.size(), "work beyond the known tokens")) return;
    const bool samples = known_end == sequence.tokens.size();
    expect(samples || work.drafts.empty(), "drafts before the end of a sequence");
    run_with_drafts(step, index, sequence);
    expect(!samples || work.sample_from < work.end, "no logits at the end of a sequence");
    if (group_of(work.seq)) return;
    const auto& [request, choice] = requests_.at(work.seq);
    if (request->pooling() != nullptr) return run_pooling(work, *request, sequence, outcomes);
    Outcome outcome{work.seq, request::Tokens{}, {}};
    for (int p = work.sample_from; p < std::min(work.end, static_cast<int>(request->prompt.size()) - 1);
         ++p) {
      outcome.prompt_logprobs.push_back({request->prompt[static_cast<size_t>(p) + 1], -1.0f, {}});
    }
    if (samples && faults.request_fails(work.seq)) {
      sequence.failed = true;
      outcomes.push_back({work.seq, Error{ErrorCode::Numerical, "logits are not finite"}, {}});
      return;
    }
    if (samples) sample(work, sequence, choice, std::get<request::Tokens>(outcome.result));
    if (samples && request::needs_host_sampling(request->sampling()))
      expect(uncollected_.insert(work.seq).second, "runs ahead of a token that the host samples");
    if (samples || !outcome.prompt_logprobs.empty()) outcomes.push_back(std::move(outcome));
  }

  void run_with_drafts(const Step& step, size_t index, const Sequence& sequence) {
    const std::vector<Token>& guesses = step.work[index].drafts;
    if (guesses.empty()) return run_kv(step, index, sequence);
    Sequence guessed = sequence;
    for (const Token token : guesses) guessed.append(token);
    run_kv(step, index, guessed);
  }

  // Appends the drafts that are right and one token more; then guesses, wrongly in one case out of four.
  void sample(const request::Work& work, Sequence& sequence, int choice, request::Tokens& out) {
    size_t right = 0;
    for (bool more = true; more;) {
      const Token token = invent(sequence.hashes.back(), choice);
      sequence.append(token);
      out.tokens.push_back({token, -0.5f * static_cast<float>(token % 7), {}});
      more = right < work.drafts.size() && work.drafts[right] == token;
      right += more;
    }
    accepted_ += static_cast<int64_t>(right);
    rejected_ += static_cast<int64_t>(work.drafts.size() - right);
    uint64_t hash = sequence.hashes.back();
    for (int i = 0; i < drafts; ++i) {
      const Token token = invent(hash, choice);
      const bool wrong = mix(hash + 3) % 4 == 0;
      out.drafts.push_back(wrong ? (token + 1) % kVocab : token);
      hash = extend(hash, out.drafts.back());
    }
  }

  void run_pooling(const request::Work& work, const Request& request, Sequence& sequence,
                   std::vector<Outcome>& outcomes) {
    const bool mean = request.pooling()->of == request::Pooling::Of::Mean;
    const int size = static_cast<int>(request.prompt.size());
    if (work.sample_from == work.end) return;
    expect(work.sample_from == (mean ? sequence.pooled_rows : size - 1),
           "pools other positions than the next");
    for (int p = work.sample_from; p < work.end; ++p, ++sequence.pooled_rows) {
      sequence.pooled = pool(sequence.pooled, sequence.hashes[static_cast<size_t>(p)]);
    }
    if (work.end < size) return;
    if (faults.request_fails(work.seq)) {
      sequence.failed = true;
      outcomes.push_back({work.seq, Error{ErrorCode::Numerical, "hidden states are not finite"}, {}});
    } else {
      outcomes.push_back({work.seq, request::Pooled{vector_of(sequence.pooled)}, {}});
    }
  }

  Group* group_of(SeqId seq) {
    for (auto& [id, group] : groups_) {
      if (std::find(group.lanes.begin(), group.lanes.end(), seq) != group.lanes.end()) return &group;
    }
    return nullptr;
  }

  void finish_group(SeqId id, Group& group, const Step& step, std::vector<Outcome>& outcomes) {
    std::vector<uint64_t> hashes;
    bool lost = false;
    for (const request::Work& work : step.work) {
      if (std::count(group.lanes.begin(), group.lanes.end(), work.seq) == 0) continue;
      const Sequence& sequence = sequences_.at(work.seq);
      lost |= sequence.lost;
      const bool samples = static_cast<size_t>(work.end) == sequence.tokens.size();
      if (samples) hashes.push_back(sequence.hashes.back());
    }
    if (lost) outcomes.push_back({id, request::KvLost{}, {}});
    if (hashes.empty() || lost) return;
    expect(hashes.size() == group.lanes.size(), "lanes of a search must sample together");
    outcomes.push_back({id, move_group(group, hashes), {}});
  }

  // A contrastive search settles a token with each move, a beam search gives all its hypotheses at the end.
  request::SearchMove move_group(Group& group, const std::vector<uint64_t>& hashes) {
    const Request& request = *group.request;
    const bool contrastive = std::holds_alternative<request::ContrastiveSearch>(request.sampling().method);
    const size_t prompt = request.prompt.size();
    const size_t chosen = chosen_lane(hashes);
    const std::vector<Token>& tokens = sequences_.at(group.lanes[chosen]).tokens;
    request::SearchMove result;
    if (contrastive && tokens.size() > prompt) result.settled.push_back({tokens.back(), 0, {}});
    if (tokens.size() == prompt + static_cast<size_t>(request.sampling().max_tokens)) {
      result.reason = request::FinishReason::Length;
      for (size_t lane = 0; lane < group.lanes.size() && !contrastive; ++lane) {
        result.hypotheses.push_back(hypothesis_of(sequences_.at(group.lanes[lane]).tokens, prompt));
      }
      return result;
    }
    result.moves = invent_moves(hashes, request::sequence_count(request.sampling()), contrastive);
    group.next.clear();
    for (const request::LaneMove& move : result.moves) {
      group.next.push_back(sequences_.at(group.lanes[static_cast<size_t>(move.parent)]));
      group.next.back().append(move.token);
    }
    return result;
  }

  static request::Hypothesis hypothesis_of(const std::vector<Token>& tokens, size_t prompt) {
    request::Hypothesis hypothesis{.reason = request::FinishReason::Length};
    for (size_t i = prompt; i < tokens.size(); ++i) hypothesis.tokens.push_back({tokens[i], 0, {}});
    return hypothesis;
  }

  kv::KvManagerOptions options_;
  int depth_;
  sched::RopeSets rope_;
  std::unordered_map<SeqId, Sequence> sequences_;
  std::unordered_map<SeqId, std::pair<std::shared_ptr<const Request>, int>> requests_;
  std::unordered_map<SeqId, Group> groups_;
  std::vector<std::array<std::vector<uint64_t>, request::kTiers>> memory_;  // [group][tier][block * slot]
  std::vector<std::unordered_map<int32_t, bool>> bad_;  // [group] device blocks that could not be read back
  std::deque<std::vector<Outcome>> done_;
  std::unordered_set<SeqId> uncollected_;  // host-sampled sequences whose last token was not collected
  int64_t tokens_run_ = 0, accepted_ = 0, rejected_ = 0;
  std::string complaint_;
};

}  // namespace sluice::sim

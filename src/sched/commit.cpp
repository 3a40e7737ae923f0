// Scheduler::commit: what came of a step.
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/system/memory.h"
#include "sched/scheduler.h"

namespace sluice::sched {

std::vector<Progress> Scheduler::commit(const request::Step& step, std::vector<request::Outcome> outcomes) {
  take_back_work(step, outcomes);
  ask_again(step, outcomes);
  std::vector<Progress> all;
  all.reserve(outcomes.size());
  for (request::Outcome& outcome : outcomes) {
    const auto found = lanes_.find(outcome.seq);
    if (found == lanes_.end()) continue;  // it ended while the step ran
    const auto [entry, lane] = found->second;
    if (std::holds_alternative<request::Postponed>(outcome.result)) {
      put_off(step, *entry);
      continue;
    }
    Progress progress{.request = entry->request->id, .choice = entry->search ? 0 : entry->lanes[lane].choice};
    progress.prompt_logprobs = std::move(outcome.prompt_logprobs);
    progress.prompt_attention = std::move(outcome.prompt_attention);
    if (!has_room(*entry, lane, outcome)) outcome.result = out_of_memory();
    if (auto* tokens = std::get_if<request::Tokens>(&outcome.result))
      take_tokens(*entry, lane, std::move(*tokens), progress);
    if (auto* move = std::get_if<request::SearchMove>(&outcome.result))
      take_move(*entry, std::move(*move), progress);
    if (auto* pooled = std::get_if<request::Pooled>(&outcome.result))
      take_vector(*entry, std::move(*pooled), progress);
    if (std::holds_alternative<request::KvLost>(outcome.result)) take_loss(*entry, lane);
    if (auto* error = std::get_if<Error>(&outcome.result)) fail(*entry, std::move(*error), progress);
    all.push_back(std::move(progress));
  }
  return all;
}

// Memory for the tokens of a long sequence comes in large blocks: where there is none, its request fails alone, before
// anything of it has changed.
bool Scheduler::has_room(RequestState& entry, size_t lane, const request::Outcome& outcome) {
  const auto* tokens = std::get_if<request::Tokens>(&outcome.result);
  if (tokens == nullptr) return true;
  std::vector<Token>& known = entry.lanes[lane].tokens;
  const size_t needed = known.size() + tokens->tokens.size();
  if (needed <= known.capacity()) return true;
  try {
    known.reserve(std::max(needed, 2 * known.capacity()));
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

// The work is in flight no more. What it computed can be found from now on, but for requests that it did not go well for.
void Scheduler::take_back_work(const request::Step& step, const std::vector<request::Outcome>& outcomes) {
  std::vector<const RequestState*> doubtful;
  for (const request::Outcome& outcome : outcomes) {
    const bool sound = !std::holds_alternative<request::KvLost>(outcome.result) &&
                       !std::holds_alternative<request::Postponed>(outcome.result) &&
                       !std::holds_alternative<Error>(outcome.result);
    if (sound) continue;
    if (const auto found = lanes_.find(outcome.seq); found != lanes_.end())
      doubtful.push_back(found->second.entry);
  }
  for (const request::Work& work : step.work) {
    const auto found = lanes_.find(work.seq);
    if (found == lanes_.end()) continue;
    const auto [entry, index] = found->second;
    SequenceState& lane = entry->lanes[index];
    if (lane.seq != work.seq) continue;
    --lane.in_flight;
    if (!options_.kv_cache || entry->phase != Phase::Running) continue;
    if (std::count(doubtful.begin(), doubtful.end(), entry) > 0) continue;
    entry->postponed = false;
    kv_manager_.publish(lane.seq, std::span(lane.tokens).first(static_cast<size_t>(work.known_end())));
  }
}

// Outputs that lost work should have given are still wanted.
void Scheduler::ask_again(const request::Step& step, const std::vector<request::Outcome>& outcomes) {
  for (const request::Outcome& outcome : outcomes) {
    if (!std::holds_alternative<request::KvLost>(outcome.result) &&
        !std::holds_alternative<request::Postponed>(outcome.result))
      continue;
    const auto lost = lanes_.find(outcome.seq);
    if (lost == lanes_.end()) continue;
    RequestState& entry = *lost->second.entry;
    for (const request::Work& work : step.work) {
      const auto found = lanes_.find(work.seq);
      if (found == lanes_.end() || found->second.entry != &entry) continue;
      if (work.sample_from >= std::min(work.end, entry.prompt_outputs())) continue;
      entry.prompt_read = std::min(entry.prompt_read, work.sample_from);
    }
  }
}

bool Scheduler::is_end_token(const request::SamplingParams& sampling, Token token) const {
  const auto has = [&](const std::vector<Token>& list) {
    return std::count(list.begin(), list.end(), token) > 0;
  };
  return has(sampling.stop_tokens) || (!sampling.ignore_eos && has(options_.end_tokens));
}

// Whether the lane ends with its last token, and why.
std::optional<request::FinishReason> Scheduler::end_of(const RequestState& entry,
                                                       const SequenceState& lane) const {
  const request::SamplingParams& sampling = entry.request->sampling();
  const int generated = static_cast<int>(lane.tokens.size()) - entry.prompt_size();
  if (is_end_token(sampling, lane.tokens.back())) return request::FinishReason::Stop;
  if (generated >= sampling.max_tokens) return request::FinishReason::Length;
  return std::nullopt;
}

void Scheduler::take_tokens(RequestState& entry, size_t index, request::Tokens tokens, Progress& progress) {
  SequenceState& lane = entry.lanes[index];
  if (tokens.tokens.empty()) return;
  // Several tokens have gone past the rows that steps in flight would sample from: those add nothing.
  lane.pending = tokens.tokens.size() > 1 ? 0 : std::max(0, lane.pending - 1);
  progress.tokens = std::move(tokens.tokens);
  for (size_t i = 0; i < progress.tokens.size(); ++i) {
    lane.tokens.push_back(progress.tokens[i].token);
    progress.finished = end_of(entry, lane);
    progress.stop_token = progress.finished == request::FinishReason::Stop;
    if (progress.finished) progress.tokens.resize(i + 1);
  }
  lane.drafts = std::move(tokens.drafts);
  lane.guessed = !lane.drafts.empty() && options_.kv_cache;
  progress.verified = tokens.verified;
  if (!progress.finished && tokens.ended) progress.finished = request::FinishReason::Stop;
  if (lane.verifying) settle_drafts(entry, lane, tokens.verified.accepted);
  if (!progress.finished) return;
  end_lane(entry, lane);
  progress.ended = first_active(entry) == nullptr;
  if (progress.ended) erase(entry);
}

// The drafts that became tokens are computed like any other token, and the rest is given back. Tokens behind them have
// been sampled, not run.
void Scheduler::settle_drafts(RequestState& entry, SequenceState& lane, int accepted) {
  lane.verifying = false;
  if (!kv_manager_.contains(lane.seq)) return;  // dropped meanwhile
  lane.computed = std::min(lane.computed + accepted, static_cast<int>(lane.tokens.size()) - 1);
  kv_manager_.truncate(lane.seq, lane.computed);
  if (entry.phase == Phase::Running)
    kv_manager_.publish(lane.seq, std::span(lane.tokens).first(static_cast<size_t>(lane.computed)));
}

void Scheduler::take_move(RequestState& entry, request::SearchMove move, Progress& progress) {
  const int lanes = static_cast<int>(entry.lanes.size());
  const bool sound =
      static_cast<int>(move.moves.size()) <= entry.num_sequences &&
      std::all_of(move.moves.begin(), move.moves.end(),
                  [&](const request::LaneMove& m) { return m.parent >= 0 && m.parent < lanes; }) &&
      (move.moves.empty() ||
       entry.lanes.front().length() <= entry.prompt_size() + entry.request->sampling().max_tokens);
  if (!sound) return fail(entry, {ErrorCode::Internal, "a search moved beyond its limits"}, progress);
  const auto ends = [&](const std::vector<request::Sampled>& tokens) {
    return !tokens.empty() && is_end_token(entry.request->sampling(), tokens.back().token);
  };
  progress.tokens = std::move(move.settled);
  progress.stop_token = ends(progress.tokens);
  progress.hypotheses = std::move(move.hypotheses);
  for (request::Hypothesis& hypothesis : progress.hypotheses) hypothesis.stop_token = ends(hypothesis.tokens);
  if (move.moves.empty()) {
    progress.finished = progress.hypotheses.empty() ? move.reason : progress.hypotheses.front().reason;
    progress.ended = true;
    return erase(entry);
  }
  std::optional<std::vector<SequenceState>> next = children_of(entry, move.moves);
  if (!next) return fail(entry, out_of_memory(), progress);
  move_lanes(entry, move.moves, *std::move(next));
}

void Scheduler::take_vector(RequestState& entry, request::Pooled pooled, Progress& progress) {
  progress.pooled = std::move(pooled);
  progress.finished = request::FinishReason::Stop;
  progress.ended = true;
  erase(entry);
}

// The lanes after the moves, each still with the id of its parent. Nothing where there is no memory for their tokens.
std::optional<std::vector<SequenceState>> Scheduler::children_of(
    const RequestState& entry, const std::vector<request::LaneMove>& moves) {
  try {
    std::vector<SequenceState> next;
    for (const request::LaneMove& move : moves) {
      next.push_back(entry.lanes[static_cast<size_t>(move.parent)]);
      next.back().tokens.push_back(move.token);
    }
    return next;
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

// The first child of a lane takes its place, further ones fork it, lanes without children end. Those end
// first, so that the search never holds more blocks than it has lanes for.
void Scheduler::move_lanes(RequestState& entry, const std::vector<request::LaneMove>& moves,
                           std::vector<SequenceState> next) {
  std::vector<int> children(entry.lanes.size());
  for (const request::LaneMove& move : moves) ++children[static_cast<size_t>(move.parent)];
  for (size_t i = 0; i < entry.lanes.size(); ++i) {
    if (children[i] > 0) continue;
    release(entry.lanes[i]);
    if (entry.lanes[i].seq != entry.group) lanes_.erase(entry.lanes[i].seq);
  }
  std::vector<bool> continued(entry.lanes.size());
  request::Lanes moved{entry.group, {}};
  for (size_t i = 0; i < moves.size(); ++i) {
    const auto parent = static_cast<size_t>(moves[i].parent);
    SequenceState& lane = next[i];
    if (continued[parent]) {
      lane.seq = new_seq();
      kv_manager_.fork(entry.lanes[parent].seq, lane.seq, lane.computed);
    }
    continued[parent] = true;
    lane.pending = lane.in_flight = 0;
    moved.lanes.push_back(lane.seq);
    lanes_[lane.seq] = {&entry, i};
  }
  entry.lanes = std::move(next);
  entry.forked = true;
  std::erase_if(moved_, [&](const request::Lanes& lanes) { return lanes.group == entry.group; });
  moved_.push_back(std::move(moved));
}

// Computes the sequence again, from nothing but its tokens.
void Scheduler::take_loss(RequestState& entry, size_t lost) {
  for (size_t i = 0; i < entry.lanes.size(); ++i) {
    if (entry.search || i == lost) entry.lanes[i].pending = 0;
    if (i == lost) entry.lanes[i].verifying = entry.lanes[i].guessed = false;
  }
  ++counters_.kv_lost;
  entry.distrusts = true;
  for (const SeqId seq : resident_lanes(entry)) kv_manager_.invalidate(seq);
  compute_again(entry);
}

// Work of a prompt that was not run is planned again. Its blocks stay, and so does what its client was charged: a tower ran
// in its place.
void Scheduler::put_off(const request::Step& step, RequestState& entry) {
  if (entry.phase != Phase::Running) return;
  entry.postponed = true;
  for (const request::Work& work : step.work) {
    const auto found = lanes_.find(work.seq);
    if (found == lanes_.end() || found->second.entry != &entry) continue;
    SequenceState& lane = entry.lanes[found->second.lane];
    lane.computed = work.begin;
    if (work.end == static_cast<int>(lane.tokens.size())) lane.pending = std::max(0, lane.pending - 1);
  }
}

void Scheduler::fail(RequestState& entry, Error error, Progress& progress) {
  for (const SeqId seq : resident_lanes(entry)) kv_manager_.invalidate(seq);
  progress.error = std::move(error);
  progress.finished = request::FinishReason::Error;
  progress.ended = true;
  erase(entry);
}

}  // namespace sluice::sched

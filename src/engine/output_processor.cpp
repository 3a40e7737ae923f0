#include "engine/output_processor.h"

#include <algorithm>
#include <exception>
#include <new>
#include <string>

#include "base/check.h"
#include "base/system/memory.h"

namespace sluice::engine {

namespace {

Clock::duration ticks(Seconds seconds) {
  return std::chrono::duration_cast<Clock::duration>(seconds);
}

}  // namespace

void OutputProcessor::add(std::shared_ptr<const request::Request> request, Submission submission,
                          TimePoint received, std::optional<Seconds> patience) {
  const RequestId id = request->id;
  Active& active = requests_[id];
  const auto* sampling = std::get_if<request::SamplingParams>(&request->task);
  active.received = received;
  active.ranks_choices = sampling != nullptr && request::sampling_of(*sampling) != nullptr &&
                         request::sequence_count(*sampling) > sampling->n;
  active.usage.prompt_tokens = static_cast<int>(request->prompt.size());
  if (patience) active.start_by = received + ticks(*patience);
  if (submission.time_limit) active.end_by = received + ticks(*submission.time_limit);
  active.request = std::move(request);
  active.deliver = std::move(submission.deliver);
  active.text = std::move(submission.text);
  active.kept = std::move(submission.kept);
  set_deadline(id, active);
}

void OutputProcessor::set_deadline(RequestId id, Active& active) {
  if (active.deadline) deadlines_.erase({*active.deadline, id});
  active.deadline = active.end_by;
  const bool waits = active.start_by && !active.started;
  if (waits && (!active.end_by || *active.start_by < *active.end_by)) active.deadline = active.start_by;
  if (active.deadline) deadlines_.emplace(*active.deadline, id);
}

void OutputProcessor::start(const request::Admission& admission, TimePoint now) {
  Active& active = requests_.at(admission.request->id);
  active.started = now;
  set_deadline(admission.request->id, active);
  active.usage.cached_tokens = admission.cached;
  metrics_.queue.record(seconds_between(active.received, now));
  metrics_.prompt_tokens.add(static_cast<uint64_t>(active.usage.prompt_tokens));
  metrics_.cached_tokens.add(static_cast<uint64_t>(admission.cached));
  metrics_.prompt_length.record(active.usage.prompt_tokens);
}

OutputProcessor::Choice& OutputProcessor::choice(Active& active, int index) {
  const auto at = static_cast<size_t>(index);
  while (active.choices.size() <= at) {
    Choice& fresh = active.choices.emplace_back();
    const auto number = static_cast<int>(active.choices.size()) - 1;
    if (active.text) fresh.text = active.text(number);
  }
  return active.choices[at];
}

ChoiceEnd OutputProcessor::end_of(const Choice& choice, int index, double score) {
  ChoiceEnd end{.choice = index, .reason = choice.reason.value_or(FinishReason::Stop), .score = score};
  end.stop_string = choice.stop_string;
  if (end.stop_string.empty()) end.stop_token = choice.stop_token;
  return end;
}

// Adds the text of the new tokens; true where it met a stop string. Tokens of the same step behind it are dropped.
Result<bool> OutputProcessor::add_text(Active& active, sched::Progress& progress, Delta& delta) {
  Choice& current = choice(active, progress.choice);
  if (!current.text) return false;
  std::vector<Token> tokens;
  for (const request::Sampled& sampled : progress.tokens) tokens.push_back(sampled.token);
  if (progress.stop_token && !tokens.empty()) {
    current.stop_token = tokens.back();
    tokens.pop_back();
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    Result<TextStream::Piece> piece = current.text->push(std::span(tokens).subspan(i, 1));
    if (!piece) return piece.error();
    delta.text += piece->text;
    current.stop_string = std::move(piece->stop);
    if (!piece->stopped) continue;
    progress.tokens.resize(i + 1);
    return true;
  }
  if (progress.finished) {
    Result<std::string> rest = current.text->finish();
    if (!rest) return rest.error();
    delta.text += *rest;
  }
  return false;
}

OutputProcessor::PostAction OutputProcessor::take(sched::Progress& progress, TimePoint now) {
  const auto found = requests_.find(progress.request);
  if (found == requests_.end() || progress.error) return {};
  Active& active = found->second;
  PostAction verdict;
  try {
    if (progress.pooled) {
      emit(active, Embedding{std::move(progress.pooled->values)}, now);
      return verdict;
    }
    if (!progress.hypotheses.empty()) {
      const Status added = add_hypotheses(active, progress.hypotheses, now);
      if (!added) verdict.error = added.error();
      return verdict;
    }
    Delta delta{.choice = progress.choice};
    Choice& current = choice(active, progress.choice);
    const Result<bool> stopped = add_text(active, progress, delta);
    active.usage.generated_tokens += static_cast<int>(progress.tokens.size());
    active.usage.drafted_tokens += progress.verified.drafted;
    active.usage.accepted_drafts += progress.verified.accepted;
    metrics_.generated_tokens.add(progress.tokens.size());
    if (!stopped) return {.error = stopped.error()};
    verdict.stop = *stopped;
    for (const request::Sampled& sampled : progress.tokens) current.logprob += sampled.logprob;
    current.tokens += static_cast<int>(progress.tokens.size());
    delta.tokens = std::move(progress.tokens);
    delta.prompt_logprobs = std::move(progress.prompt_logprobs);
    delta.prompt_attention = std::move(progress.prompt_attention);
    const bool anything = !delta.tokens.empty() || !delta.text.empty() || !delta.prompt_logprobs.empty();
    if (anything) emit(active, std::move(delta), now);
    if (*stopped) current.reason = FinishReason::Stop;
    if (progress.finished && !*stopped) current.reason = progress.finished;
    if (current.reason && !active.ranks_choices) {
      const double mean = current.tokens == 0 ? 0 : current.logprob / current.tokens;
      emit(active, end_of(current, progress.choice, mean), now);
    }
  } catch (const std::bad_alloc&) {
    verdict.error = out_of_memory();
  } catch (const std::exception& problem) {
    verdict.error = Error{ErrorCode::Internal, std::string("making text failed: ") + problem.what()};
  }
  return verdict;
}

Status OutputProcessor::add_hypotheses(Active& active, std::vector<request::Hypothesis>& hypotheses,
                                       TimePoint now) {
  const size_t count = std::min(hypotheses.size(), static_cast<size_t>(active.request->sampling().n));
  for (size_t i = 0; i < count; ++i) {
    request::Hypothesis& hypothesis = hypotheses[i];
    const int index = static_cast<int>(i);
    sched::Progress as_progress{.choice = index,
                                .tokens = hypothesis.tokens,
                                .finished = hypothesis.reason,
                                .stop_token = hypothesis.stop_token};
    Delta delta{.choice = index};
    Choice& current = choice(active, index);
    const Result<bool> stopped = add_text(active, as_progress, delta);
    if (!stopped) return stopped.error();
    delta.tokens = std::move(hypothesis.tokens);
    current.reason = hypothesis.reason;
    current.tokens = static_cast<int>(delta.tokens.size());
    active.usage.generated_tokens += static_cast<int>(delta.tokens.size());
    metrics_.generated_tokens.add(delta.tokens.size());
    emit(active, std::move(delta), now);
    emit(active, end_of(current, index, hypothesis.score), now);
  }
  return {};
}

// The n choices of the best mean log-probability, numbered from 0.
void OutputProcessor::send_best(Active& active, TimePoint now) {
  const auto mean = [&](size_t i) {
    const Choice& one = active.choices[i];
    return one.tokens == 0 ? 0 : one.logprob / one.tokens;
  };
  std::vector<size_t> order(active.choices.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return mean(a) > mean(b); });
  order.resize(std::min(order.size(), static_cast<size_t>(active.request->sampling().n)));
  active.ranks_choices = false;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    Choice& best = active.choices[order[rank]];
    Delta delta = std::move(best.kept);
    delta.choice = static_cast<int>(rank);
    ChoiceEnd last = end_of(best, delta.choice, mean(order[rank]));
    emit(active, std::move(delta), now);
    emit(active, std::move(last), now);
  }
}

void OutputProcessor::emit(Active& active, Event event, TimePoint now) {
  if (auto* delta = std::get_if<Delta>(&event); delta != nullptr && active.ranks_choices) {
    Delta& kept = choice(active, delta->choice).kept;
    for (request::Sampled& sampled : delta->tokens) kept.tokens.push_back(std::move(sampled));
    for (request::Sampled& sampled : delta->prompt_logprobs)
      kept.prompt_logprobs.push_back(std::move(sampled));
    kept.text += delta->text;
  } else if (holding_) {
    if (active.held.empty()) held_.push_back(active.request->id);
    active.held.push_back(std::move(event));
  } else {
    send(active, std::move(event), now);
  }
}

void OutputProcessor::send(Active& active, Event event, TimePoint now) {
  if (const auto* delta = std::get_if<Delta>(&event)) stamp_tokens(active, *delta, now);
  if (auto* finished = std::get_if<Finished>(&event)) complete(active, *finished, now);
  try {
    active.deliver(std::move(event));
  } catch (const std::exception&) {
    // A client that cannot take its events loses them; everybody else goes on.
  }
}

void OutputProcessor::stamp_tokens(Active& active, const Delta& delta, TimePoint now) {
  if (delta.tokens.empty()) return;
  Choice& current = choice(active, delta.choice);
  if (!active.first_sent) {
    active.first_sent = now;
    metrics_.ttft.record(seconds_between(active.received, now));
    if (active.started) metrics_.prefill.record(seconds_between(*active.started, now));
  }
  if (current.last_sent) metrics_.tbt.record(seconds_between(*current.last_sent, now));
  for (size_t i = 1; i < delta.tokens.size(); ++i) metrics_.tbt.record(0);
  if (!current.first_sent) current.first_sent = now;
  current.last_sent = active.last_sent = now;
}

void OutputProcessor::complete(const Active& active, Finished& finished, TimePoint now) {
  if (trace_.watched(now)) trace_.add({active.request->id, now, finished.reason});
  Timings& timings = finished.timings;
  finished.usage = active.usage;
  timings.latency = seconds_between(active.received, now);
  if (active.started) timings.queue = seconds_between(active.received, *active.started);
  if (active.first_sent) {
    timings.ttft = seconds_between(active.received, *active.first_sent);
    metrics_.decode.record(seconds_between(*active.first_sent, *active.last_sent));
  }
  int longest = 0;
  for (const Choice& one : active.choices) {
    if (!one.first_sent) continue;
    metrics_.output_length.record(one.tokens);
    if (one.tokens < 2) continue;
    const double gap = seconds_between(*one.first_sent, *one.last_sent) / (one.tokens - 1);
    metrics_.tpot.record(gap);
    if (one.tokens > longest) timings.tpot = gap;
    longest = std::max(longest, one.tokens);
  }
  metrics_.latency.record(timings.latency);
  switch (finished.reason) {
    case FinishReason::Stop:
      metrics_.stopped.add();
      break;
    case FinishReason::Length:
      metrics_.reached_length.add();
      break;
    case FinishReason::Cancelled:
      metrics_.cancelled.add();
      break;
    case FinishReason::Expired:
      metrics_.expired.add();
      break;
    case FinishReason::Error:
      metrics_.failed.add();
      if (finished.error && finished.error->code == ErrorCode::Numerical) metrics_.corrupted.add();
      break;
  }
}

void OutputProcessor::end(RequestId id, FinishReason reason, std::optional<Error> error, TimePoint now) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  Active& active = found->second;
  if (active.deadline) deadlines_.erase({*active.deadline, id});
  const bool natural = reason == FinishReason::Stop;
  if (natural && active.ranks_choices) send_best(active, now);
  for (const Choice& one : active.choices) {
    if (natural && one.reason == FinishReason::Length) reason = FinishReason::Length;
  }
  if (!natural) active.held.clear();  // whoever cancels or fails gets no answer, held back or not
  Finished finished{.reason = reason, .error = std::move(error), .retry_after_s = active.retry_after_s};
  if (natural && holding_) {
    active.ended = true;
    emit(active, std::move(finished), now);
    return;
  }
  send(active, std::move(finished), now);
  requests_.erase(found);
}

void OutputProcessor::refuse(RequestId id, Error error, int retry_after_s, TimePoint now) {
  requests_.at(id).retry_after_s = retry_after_s;
  end(id, FinishReason::Expired, std::move(error), now);
}

void OutputProcessor::set_holding(bool holding, TimePoint now) {
  holding_ = holding;
  if (holding) return;
  for (const RequestId id : std::exchange(held_, {})) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) continue;
    Active& active = found->second;
    for (Event& event : std::exchange(active.held, {})) send(active, std::move(event), now);
    if (active.ended) requests_.erase(found);
  }
}

std::vector<RequestId> OutputProcessor::ids() const {
  std::vector<RequestId> all;
  for (const auto& [id, active] : requests_) all.push_back(id);
  return all;
}

std::optional<RequestId> OutputProcessor::youngest() const {
  std::optional<RequestId> last;
  for (const auto& [id, active] : requests_)
    if (!active.ended && (!last || id.value > last->value)) last = id;
  return last;
}

std::optional<OutputProcessor::Deadline> OutputProcessor::next_deadline() const {
  if (deadlines_.empty()) return std::nullopt;
  const auto [at, id] = *deadlines_.begin();
  const Active& active = requests_.at(id);
  return Deadline{at, id, !active.started && active.start_by == at};
}

}  // namespace sluice::engine

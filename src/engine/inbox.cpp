// How requests come into the engine.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/system/memory.h"
#include "engine/engine.h"

namespace sluice::engine {

// -- any thread

Engine::Load Engine::load_of(const Submission& submission) {
  const request::Request& request = submission.request;
  size_t bytes = submission.text_bytes + sizeof request + request.client.size() + request.cache_salt.size();
  bytes += request.prompt.size() * sizeof(Token);
  for (const request::EmbeddingSource& source : request.sources)
    if (source.first == 0) bytes += source.image->rgb.size();
  if (const auto* sampling = std::get_if<request::SamplingParams>(&request.task)) {
    bytes += sampling->logit_bias.size() * sizeof(request::LogitBias);
    bytes += sampling->stop_tokens.size() * sizeof(Token);
    if (sampling->constraint) bytes += bytes_of(*sampling->constraint);
    if (sampling->allowed_tokens) bytes += sampling->allowed_tokens->size() * sizeof(Token);
    for (const std::vector<Token>& word : sampling->bad_words)
      bytes += sizeof word + word.size() * sizeof(Token);
  }
  return {.requests = 1, .tokens = request.prompt.size(), .bytes = bytes};
}

Status Engine::check(const request::Request& request) const {
  if (Status valid = request::validate(request.task, options_.vocab); !valid) return valid;
  for (const Token token : request.prompt) {
    if (token >= 0 && token < options_.vocab) continue;
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("the prompt holds token {}; the vocabulary ends at {}", token, options_.vocab - 1)};
  }
  return scheduler_.admissible(request);
}

Result<RequestId> Engine::submit(Submission submission) {
  SLUICE_CHECK(submission.deliver != nullptr);
  Status status = check(submission.request);
  RequestId id;
  if (status) {
    const std::lock_guard lock(mutex_);
    if (failed_) status = Error{ErrorCode::Unavailable, "the device has failed: " + failure_};
    if (status && (closed_ || stopping_))
      status = Error{ErrorCode::Unavailable, "the engine takes nothing more in"};
    if (status && out_of_reserve_) status = out_of_memory();
    if (status) {
      make_room();
      status = take_place(submission);
    }
    if (status) {
      id = RequestId{next_id_++};
      const TimePoint received = now_();
      submission.request.id = id;
      submission.request.arrival = received;
      if (submission.first_token_within)
        submission.request.first_token_by =
            received + std::chrono::duration_cast<Clock::duration>(*submission.first_token_within);
      if (unfinished_++ == 0) progress_at_ = received.time_since_epoch().count();
      inbox_.push_back(Arrival{id, std::move(submission), received});
    }
  }
  (status ? metrics_.received : metrics_.refused).add();
  if (!status) return status.error();
  changed_.notify_one();
  return id;
}

// For one more arrival, and for the cancelling of it and of all others. REQUIRES: mutex_ is held.
void Engine::make_room() {
  const auto grow = [](auto& list, size_t size) {
    if (list.capacity() < size) list.reserve(std::max(size, 2 * list.capacity()));
  };
  grow(inbox_, inbox_.size() + 1);
  grow(cancelled_, cancelled_.size() + unfinished_ + 1);
}

void Engine::cancel(RequestId id) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(id);
  } catch (const std::bad_alloc&) {
    return;
  }
  changed_.notify_one();
}

// -- the engine's thread

void Engine::drain_inbox() {
  std::vector<Arrival> arrivals;
  std::vector<RequestId> cancelled;
  {
    const std::lock_guard lock(mutex_);
    arrivals.swap(inbox_);
    cancelled.assign(cancelled_.begin(), cancelled_.end());  // whose capacity is kept for those that run
    cancelled_.clear();
    scheduler_.set_closed(closed_);
  }
  for (Arrival& arrival : arrivals) take(std::move(arrival));
  for (const RequestId id : cancelled) end_early(id, FinishReason::Cancelled);
  if (!arrivals.empty() || !cancelled.empty()) give_places_back();
}

// The loop goes on when the gate is settled.
void Engine::watch_gate(const request::Request& request) {
  if (request.gate == nullptr || request.gate->state() == request::Gate::State::Open) return;
  gates_.emplace(request.id, request.gate);
  request.gate->when_settled([waker = waker_] {
    const std::lock_guard alive(waker->mutex);
    if (waker->engine == nullptr) return;
    {
      const std::lock_guard lock(waker->engine->mutex_);
      waker->engine->gate_settled_ = true;
    }
    waker->engine->changed_.notify_one();
  });
}

void Engine::end_failed_gates() {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(gate_settled_, false)) return;
  }
  std::vector<std::pair<RequestId, Error>> failed;
  std::erase_if(gates_, [&](const auto& entry) {
    const auto& [id, gate] = entry;
    if (gate->state() == request::Gate::State::Failed) failed.emplace_back(id, gate->error());
    return gate->state() != request::Gate::State::Closed;
  });
  for (auto& [id, error] : failed) end_early(id, FinishReason::Error, std::move(error));
}

void Engine::take(Arrival arrival) {
  Submission& submission = arrival.submission;
  places_[arrival.id] = {load_of(submission), submission.request.client};
  const auto request = std::make_shared<const request::Request>(std::move(submission.request));
  output_.add(request, std::move(submission), arrival.received, options_.queue.wait);
  if (refuse_overdue(*request)) return;
  watch_gate(*request);
  scheduler_.add(request);
}

// Where the deadline of a request that just came cannot be met.
bool Engine::refuse_overdue(const request::Request& request) {
  if (!request.first_token_by) return false;
  const TimePoint now = now_();
  const double wait = scheduler_.time_to_first_token(request).count();
  const double left = seconds_between(now, *request.first_token_by);
  if (wait <= left) return false;
  if (const auto place = places_.extract(request.id)) free_place(place.mapped());
  const std::string message = fmt::format(
      "the first token would take about {:.2f} s, its deadline is in {:.2f} s", wait, std::max(0.0, left));
  const int retry = static_cast<int>(std::clamp(std::ceil(wait - left), 1.0, 3600.0));
  output_.refuse(request.id, {ErrorCode::Unavailable, message}, retry, now);
  return true;
}

}  // namespace sluice::engine

#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace sluice::engine {

Engine::Engine(EngineOptions options, sched::Executor& executor, Now now)
    : options_(std::move(options)),
      executor_(executor),
      now_(std::move(now)),
      ledger_(options_.ledger),
      scheduler_(options_.scheduler, ledger_),
      output_(metrics_, trace_) {
  progress_at_ = now_().time_since_epoch().count();
}

Engine::~Engine() {
  stop();
  fail_all({ErrorCode::Unavailable, "the engine was stopped"});
}

// -- any thread

Engine::Load Engine::load_of(const Submission& submission) {
  const request::Request& request = submission.request;
  size_t bytes = submission.text_bytes + sizeof request + request.client.size() + request.cache_salt.size();
  bytes += request.prompt.size() * sizeof(Token);
  if (const auto* sampling = std::get_if<request::SamplingParams>(&request.task)) {
    bytes += sampling->logit_bias.size() * sizeof(request::LogitBias);
    bytes += sampling->stop_tokens.size() * sizeof(Token);
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
    if (status) status = take_place(submission);
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

void Engine::send(Message message) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(message));
  }
  changed_.notify_one();
}

void Engine::cancel(RequestId id) {
  send(Cancel{id});
}

void Engine::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_one();
}

void Engine::wait_idle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return unfinished_ == 0; });
}

Health Engine::health() const {
  const std::lock_guard lock(mutex_);
  Health health{.failed = failed_, .reason = failure_, .busy = unfinished_ > 0};
  const TimePoint since{Clock::duration(progress_at_.load())};
  if (health.busy) health.idle_s = std::max(0.0, seconds_between(since, now_()));
  return health;
}

std::shared_ptr<const Snapshot> Engine::snapshot() {
  std::shared_ptr<const Snapshot> latest;
  {
    const std::lock_guard lock(mutex_);
    snapshot_wanted_ = true;
    latest = snapshot_;
  }
  changed_.notify_one();
  return latest;
}

// -- the engine's thread

void Engine::start() {
  SLUICE_CHECK(!thread_.joinable());
  thread_ = std::thread([this] { loop(); });
}

void Engine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Engine::loop() {
  while (true) {
    const bool worked = step();
    std::unique_lock lock(mutex_);
    if (stopping_) return;
    if (worked || !inbox_.empty()) continue;
    const auto news = [&, closed = closed_] {
      return stopping_ || !inbox_.empty() || closed_ != closed || snapshot_wanted_;
    };
    const std::optional<TimePoint> wake = wake_at();
    if (wake) {
      changed_.wait_until(lock, *wake, news);
    } else {
      changed_.wait(lock, news);
    }
  }
}

std::optional<TimePoint> Engine::wake_at() const {
  std::optional<TimePoint> wake = scheduler_.wake_at();
  if (const auto deadline = output_.next_deadline(); deadline && (!wake || deadline->at < *wake)) {
    wake = deadline->at;
  }
  return wake;
}

bool Engine::step() {
  drain_inbox();
  const TimePoint now = now_();
  expire(now);
  output_.set_holding(scheduler_.holding(), now);
  const bool more = submit_steps(now);
  if (!more) unoccupied_since_.reset();
  const bool finished = !in_flight_.empty();
  if (finished) finish_step();
  publish_state();
  return more || finished;  // what a finished step gave may be planned with
}

void Engine::drain_inbox() {
  std::vector<Message> messages;
  {
    const std::lock_guard lock(mutex_);
    messages.swap(inbox_);
    scheduler_.set_closed(closed_);
  }
  for (Message& message : messages) {
    if (auto* arrival = std::get_if<Arrival>(&message)) take(std::move(*arrival));
    if (const auto* cancel = std::get_if<Cancel>(&message)) end_early(cancel->id, FinishReason::Cancelled);
  }
  if (!messages.empty()) give_places_back();
}

void Engine::take(Arrival arrival) {
  places_[arrival.id] = {load_of(arrival.submission), arrival.submission.request.client};
  request::Request request = arrival.submission.request;
  output_.add(arrival.id, std::move(arrival.submission), arrival.received, options_.queue.wait);
  if (refuse_overdue(request)) return;
  scheduler_.add(std::move(request));
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

void Engine::end_early(RequestId id, FinishReason reason, std::optional<Error> error) {
  if (!output_.contains(id)) return;
  scheduler_.cancel(id);
  if (const auto place = places_.extract(id)) free_place(place.mapped());
  output_.end(id, reason, std::move(error), now_());
}

void Engine::expire(TimePoint now) {
  for (auto next = output_.next_deadline(); next && next->at <= now; next = output_.next_deadline()) {
    std::optional<Error> error;
    if (next->of_start)
      error = Error{
          ErrorCode::Unavailable,
          fmt::format("the request waited for its turn for more than {:g} s", options_.queue.wait->count())};
    end_early(next->request, FinishReason::Expired, std::move(error));
  }
}

// Keeps the executor's pipeline full.
bool Engine::submit_steps(TimePoint now) {
  bool any = false;
  while (static_cast<int>(in_flight_.size()) < executor_.depth()) {
    const TimePoint planning = now_();
    request::Step step = scheduler_.plan(now);
    if (step.empty()) break;
    any = true;
    note_start(step, now);
    try {
      launch(std::move(step), planning, now);
    } catch (const std::exception& problem) {
      fail_all({ErrorCode::Internal, std::string("the executor failed: ") + problem.what()});
      break;
    }
  }
  return any;
}

void Engine::launch(request::Step step, TimePoint planning, TimePoint now) {
  Flight& flight = in_flight_.emplace_back(Flight{std::move(step), ++steps_, {}, std::nullopt});
  if (trace_.watched(now)) flight.trace = traced(flight);
  flight.begin = now_();
  if (!flight.step.work.empty()) {
    metrics_.plan_time.record(seconds_between(planning, flight.begin));
    if (unoccupied_since_) metrics_.exposed_time.record(seconds_between(*unoccupied_since_, flight.begin));
  }
  unoccupied_since_.reset();
  executor_.submit(flight.step);
}

void Engine::finish_step() {
  Result<std::vector<request::Outcome>> outcomes = Error{};
  try {
    outcomes = executor_.collect();
  } catch (const std::exception& problem) {
    outcomes = Error{ErrorCode::Internal, std::string("the executor failed: ") + problem.what()};
  }
  const TimePoint now = now_();
  progress_at_ = now.time_since_epoch().count();
  if (!outcomes) return fail_all(outcomes.error());
  Flight flight = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (in_flight_.empty()) unoccupied_since_ = now;
  note_step(flight, now);
  output_.set_holding(scheduler_.holding(), now);
  std::vector<RequestId> ended;  // after all that their choices got from this step
  for (sched::Progress& progress : scheduler_.commit(flight.step, std::move(*outcomes))) {
    if (deliver(progress, now)) ended.push_back(progress.request);
  }
  for (const RequestId id : ended) output_.end(id, FinishReason::Stop, std::nullopt, now);
  output_.set_holding(scheduler_.holding(), now);
  if (!flight.step.work.empty()) metrics_.commit_time.record(seconds_between(now, now_()));
}

// True where all choices of the request have ended by themselves.
bool Engine::deliver(sched::Progress& progress, TimePoint now) {
  const RequestId id = progress.request;
  if (!output_.contains(id)) return false;
  const OutputProcessor::PostAction verdict = output_.take(progress, now);
  if (verdict.error) scheduler_.cancel(id);
  if (verdict.error || progress.error) {
    output_.end(id, FinishReason::Error, verdict.error ? verdict.error : progress.error, now);
    return false;
  }
  bool ended = progress.ended;
  if (verdict.stop && !progress.finished) scheduler_.finish(id, progress.choice, &ended);
  return ended;
}

void Engine::note_start(const request::Step& step, TimePoint now) {
  for (const request::Admission& admission : step.admit) {
    output_.start(admission, now);
    if (const auto place = places_.extract(admission.request->id)) free_place(place.mapped());
  }
}

// Steps that overlap count from the end of the one before, so that their times add up to the time that passed.
void Engine::note_step(Flight& flight, TimePoint now) {
  const request::Step& step = flight.step;
  const TimePoint begin = std::max(flight.begin, std::exchange(collected_, now));
  const double seconds = seconds_between(begin, now);
  if (step.work.empty()) return;
  scheduler_.observe(step.computed_tokens(), seconds);
  if (flight.trace) {
    flight.trace->begin = begin;
    flight.trace->seconds = seconds;
    trace_.add(std::move(*flight.trace));
  }
  const auto run = static_cast<uint64_t>(step.tokens()),
             computed = static_cast<uint64_t>(step.computed_tokens());
  metrics_.steps.add();
  metrics_.run_tokens.add(run);
  metrics_.computed_tokens.add(computed);
  metrics_.step_time.record(seconds);
  metrics_.batch_size.record(static_cast<double>(step.work.size()));
  metrics_.step_tokens.record(static_cast<double>(run));
  if (step.padding)
    metrics_.padding_share.record(1 - static_cast<double>(run) / static_cast<double>(computed));
  const kv::GroupUsage usage = ledger_.usage(0);
  metrics_.kv_share.record(static_cast<double>(std::max(usage.used, usage.promised)) /
                           std::max(1, usage.blocks));
}

// Every request ends with this error; the engine goes on where the executor can.
void Engine::fail_all(const Error& error) {
  drain_inbox();
  const TimePoint now = now_();
  in_flight_.clear();
  unoccupied_since_.reset();
  scheduler_.clear();
  for (const auto& [id, place] : std::exchange(places_, {})) free_place(place);
  output_.set_holding(false, now);  // answers that are complete are delivered
  for (const RequestId id : output_.ids()) output_.end(id, FinishReason::Error, error, now);
  ledger_.forget_all();
  const Status reset = executor_.reset();
  if (reset) return;
  log_error("the executor is gone: {}", reset.error().message);
  const std::lock_guard lock(mutex_);
  failed_ = true;
  failure_ = reset.error().message;
}

}  // namespace sluice::engine

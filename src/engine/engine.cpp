#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/system/memory.h"
#include "base/thread_name.h"

namespace sluice::engine {

namespace {

// How often an engine that does nothing looks whether there is memory again.
constexpr std::chrono::milliseconds kRegainInterval{100};

int64_t postponed_tokens(const request::Step& step, const std::vector<request::Outcome>& outcomes) {
  int64_t tokens = 0;
  for (const request::Outcome& outcome : outcomes) {
    if (!std::holds_alternative<request::Postponed>(outcome.result)) continue;
    for (const request::Work& work : step.work)
      if (work.seq == outcome.seq) tokens += work.end - work.begin;
  }
  return tokens;
}

}  // namespace

Engine::Engine(EngineOptions options, sched::Executor& executor, Now now)
    : options_(std::move(options)),
      executor_(executor),
      now_(std::move(now)),
      kv_manager_(options_.kv_manager),
      scheduler_(options_.scheduler, kv_manager_),
      output_(metrics_, trace_),
      waker_(std::make_shared<Waker>()) {
  waker_->engine = this;
  progress_at_ = now_().time_since_epoch().count();
}

Engine::~Engine() {
  {
    const std::lock_guard lock(waker_->mutex);
    waker_->engine = nullptr;
  }
  stop();
  fail_all({ErrorCode::Unavailable, "the engine was stopped"});
}

// -- any thread

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
  if (const Status alive = executor_.alive(); !alive && !health.failed) {
    health.failed = true;
    health.reason = alive.error().message;
  }
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

std::shared_ptr<const kv::PublishedKeys> Engine::published_keys() {
  std::shared_ptr<const kv::PublishedKeys> latest;
  {
    const std::lock_guard lock(mutex_);
    keys_wanted_ = true;
    latest = published_keys_;
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
  name_thread("engine");
  reserve_.emplace();
  while (true) {
    const bool worked = step();
    std::unique_lock lock(mutex_);
    if (stopping_) break;
    const auto mail = [&] { return !inbox_.empty() || !cancelled_.empty(); };
    if (gate_settled_ || kv_news_) continue;
    if (worked || mail()) continue;
    const auto news = [&, closed = closed_] {
      return stopping_ || mail() || closed_ != closed || snapshot_wanted_ || keys_wanted_ || gate_settled_ ||
             kv_news_;
    };
    const std::optional<TimePoint> wake = wake_at();
    if (wake) {
      changed_.wait_until(lock, *wake, news);
    } else {
      changed_.wait(lock, news);
    }
  }
  reserve_.reset();
}

std::optional<TimePoint> Engine::wake_at() const {
  std::optional<TimePoint> wake = scheduler_.wake_at();
  if (const auto deadline = output_.next_deadline(); deadline && (!wake || deadline->at < *wake)) {
    wake = deadline->at;
  }
  if (out_of_reserve_) {
    const TimePoint again = now_() + kRegainInterval;
    wake = wake ? std::min(*wake, again) : again;
  }
  return wake;
}

// Small allocations never fail here, because of the reserve, and large ones fail their requests where they are made. What
// is thrown nevertheless has left a change of state halfway.
bool Engine::step() {
  try {
    return advance();
  } catch (const std::bad_alloc&) {
    log_error("the engine's thread is out of memory, and of the {} KiB that it keeps back",
              MemoryReserve::kBlocks * MemoryReserve::kBlockBytes >> 10);
    std::abort();
  }
}

bool Engine::advance() {
  drain_inbox();
  end_failed_gates();
  const TimePoint now = now_();
  expire(now);
  output_.set_holding(scheduler_.holding(), now);
  const bool more = submit_steps(now);
  if (!more) unoccupied_since_.reset();
  const bool finished = !in_flight_.empty();
  if (finished) finish_step();
  run_kv_tasks();
  regain_memory();
  publish_state();
  return more || finished;  // what a finished step gave may be planned with
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

void Engine::end_starved() {
  for (const RequestId id : scheduler_.take_starved()) end_early(id, FinishReason::Error, out_of_memory());
}

// Where the reserve was needed and cannot be had again: what runs goes on with what is left of it, and the youngest
// request ends in each step until there is memory.
void Engine::regain_memory() {
  if (!reserve_ || reserve_->whole()) return;
  out_of_reserve_ = !reserve_->refill();
  if (!out_of_reserve_) return log_warning("the engine's thread was out of memory, and has some again");
  drain_inbox();
  if (const std::optional<RequestId> youngest = output_.youngest())
    end_early(*youngest, FinishReason::Error, out_of_memory());
}

// Keeps the executor's pipeline full, as far as what comes next is known.
bool Engine::submit_steps(TimePoint now) {
  bool any = false;
  const auto depth = [&] { return scheduler_.speculates() ? 1 : executor_.depth(); };
  while (static_cast<int>(in_flight_.size()) < depth()) {
    // What came while a step was submitted runs right behind it, not when it has ended.
    if (any) {
      drain_inbox();
      now = now_();
    }
    const TimePoint planning = now_();
    request::Step step = scheduler_.plan(now);
    if (step.empty()) {
      end_starved();
      break;
    }
    any = true;
    note_start(step, now);
    try {
      launch(std::move(step), planning, now);
      end_starved();
    } catch (const std::bad_alloc&) {
      fail_all(out_of_memory());
      break;
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
  const std::optional<TimePoint> unoccupied = std::exchange(unoccupied_since_, std::nullopt);
  executor_.submit(flight.step);
  if (flight.step.work.empty()) return;
  metrics_.plan_time.record(seconds_between(planning, flight.begin));
  if (unoccupied)
    metrics_.exposed_time.record(seconds_between(*unoccupied, flight.begin) + executor_.launch_seconds());
}

void Engine::finish_step() {
  Result<std::vector<request::Outcome>> outcomes = Error{};
  try {
    outcomes = executor_.collect();
  } catch (const std::bad_alloc&) {
    outcomes = out_of_memory();
  } catch (const std::exception& problem) {
    outcomes = Error{ErrorCode::Internal, std::string("the executor failed: ") + problem.what()};
  }
  const TimePoint now = now_();
  progress_at_ = now.time_since_epoch().count();
  if (!outcomes) return fail_all(outcomes.error());
  Flight flight = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (in_flight_.empty()) unoccupied_since_ = now;
  flight.postponed = postponed_tokens(flight.step, *outcomes);
  note_drafts(flight, *outcomes);
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
  // What towers take says nothing of tokens.
  const auto reads_picture = [](const request::Work& work) { return !work.spans.empty(); };
  if (executor_.parts_towers() || std::none_of(step.work.begin(), step.work.end(), reads_picture))
    scheduler_.observe(step.computed_tokens() - flight.postponed, seconds - executor_.tower_seconds());
  if (flight.trace) {
    flight.trace->begin = begin;
    flight.trace->seconds = seconds;
    trace_.add(std::move(*flight.trace));
  }
  const auto run = static_cast<uint64_t>(step.tokens() - flight.postponed),
             computed = static_cast<uint64_t>(step.computed_tokens() - flight.postponed);
  metrics_.steps.add();
  metrics_.run_tokens.add(run);
  metrics_.computed_tokens.add(computed);
  metrics_.step_time.record(seconds);
  metrics_.batch_size.record(static_cast<double>(step.work.size()));
  metrics_.step_tokens.record(static_cast<double>(run));
  if (step.padding)
    metrics_.padding_share.record(1 - static_cast<double>(run) / static_cast<double>(computed));
  const kv::GroupUsage usage = kv_manager_.usage(0);
  metrics_.kv_share.record(static_cast<double>(std::max(usage.used, usage.promised)) /
                           std::max(1, usage.blocks));
}

void Engine::note_drafts(Flight& flight, const std::vector<request::Outcome>& outcomes) {
  for (const request::Outcome& outcome : outcomes) {
    const auto* tokens = std::get_if<request::Tokens>(&outcome.result);
    if (tokens == nullptr || tokens->verified.drafted == 0) continue;
    const request::Verified& verified = tokens->verified;
    const auto drafted = static_cast<uint64_t>(verified.drafted),
               accepted = static_cast<uint64_t>(verified.accepted);
    Metrics::Proposer& by = metrics_.proposers[static_cast<size_t>(verified.by)];
    by.drafted.add(drafted);
    by.accepted.add(accepted);
    by.works.add();
    by.expected.add(static_cast<uint64_t>(1000 * verified.expected));
    by.cost.add(static_cast<uint64_t>(1000 * std::max(0.0f, verified.cost)));
    metrics_.drafted_tokens.add(drafted);
    metrics_.accepted_drafts.add(accepted);
    if (!flight.trace) continue;
    for (size_t i = 0; i < flight.step.work.size(); ++i) {
      if (flight.step.work[i].seq != outcome.seq) continue;
      flight.trace->work[i].drafted = verified.drafted;
      flight.trace->work[i].accepted = verified.accepted;
    }
  }
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
  kv_manager_.forget_all();
  const Status reset = executor_.reset();
  if (reset) return;
  log_error("the executor is gone: {}", reset.error().message);
  const std::lock_guard lock(mutex_);
  failed_ = true;
  failure_ = reset.error().message;
}

}  // namespace sluice::engine

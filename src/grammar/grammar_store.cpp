#include "grammar/grammar_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <iterator>
#include <new>
#include <utility>

#include "base/system/thread_turn.h"
#include "base/thread_name.h"
#include "base/thread_pool.h"

namespace sluice::grammar {

namespace {

constexpr int kWorkerNiceness =
    10;  // where every core computes tokens, compiling takes a tenth of one at most
// A worker with so many grammars behind its own runs when idle, and ends with the last of them: a scheduler lets even a
// thread of nice 19 finish its tick of a core before one that computes tokens, which a third of a small model's steps meet.
constexpr size_t kCrowd = 64;
// Seconds of the processor after which a grammar is slow: its thread then gets what nobody else wants. Of several threads
// each gets a tick now and then, so few of them may be slow at once; grammars beyond that begin again later.
constexpr double kQuickSeconds = 0.05;
constexpr int kMostSlowWorkers = 6;
constexpr std::chrono::milliseconds kLook{10};  // how often the watcher looks for slow ones

void append(std::string& key, std::string_view text) {
  key += fmt::format("{}:", text.size());
  key += text;
}

template <class Job>
Job take_first(std::deque<Job>& queue) {
  Job first = std::move(queue.front());
  queue.pop_front();
  return first;
}

Error too_long(Seconds limit) {
  return {ErrorCode::LimitExceeded, fmt::format("the grammar is not ready after {} s", limit.count())};
}

}  // namespace

std::string key_of(const request::Constraint& constraint) {
  std::string key = fmt::format("{}/", constraint.body.index());
  append(key, constraint.after);
  if (const auto* schema = std::get_if<request::JsonSchema>(&constraint.body)) {
    key += fmt::format("{}{}{}{}", schema->strict ? 's' : '-', schema->closed_objects ? 'c' : '-',
                       schema->any_order ? 'a' : '-', schema->compact ? 'b' : '-');
    append(key, schema->schema);
  } else if (const auto* object = std::get_if<request::JsonObject>(&constraint.body)) {
    key += object->compact ? 'b' : '-';
  } else if (const auto* pattern = std::get_if<request::Pattern>(&constraint.body)) {
    append(key, pattern->regex);
  } else if (const auto* choice = std::get_if<request::Choice>(&constraint.body)) {
    for (const std::string& option : choice->options) append(key, option);
  } else if (const auto* free = std::get_if<request::ContextFree>(&constraint.body)) {
    key += fmt::format("{}", static_cast<int>(free->syntax));
    append(key, free->grammar);
  } else if (const auto* tag = std::get_if<request::StructuralTag>(&constraint.body)) {
    key += tag->strict ? 's' : tag->lenient ? 'l' : '-';
    append(key, tag->tag);
  }
  return key;
}

GrammarStore::GrammarStore(std::shared_ptr<const Vocabulary> vocabulary, GrammarStoreOptions options)
    : vocabulary_(std::move(vocabulary)), options_(options) {
  if (options_.slow_workers == 0)
    options_.slow_workers = std::clamp(available_cores() / 2, 1, kMostSlowWorkers);
}

GrammarStore::~GrammarStore() {
  std::vector<Waiter> left;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    waiting_.clear();
    slow_waiting_.clear();
    for (auto& [key, job] : jobs_)
      std::move(job->waiters.begin(), job->waiters.end(), std::back_inserter(left));
    for (auto& [key, job] : jobs_) {
      job->waiters.clear();
      job->is_given_up = job->stop = true;
    }
    for (const std::shared_ptr<Worker>& worker : std::exchange(idle_, {})) assign(worker);
  }
  changed_.notify_all();
  for (const Waiter& waiter : left)
    waiter.ready(Error{ErrorCode::Unavailable, "the server is shutting down"});
  if (watcher_.joinable()) watcher_.join();
  std::unique_lock lock(mutex_);
  worker_ended_.wait(lock, [&] { return quick_ + slow_ == 0; });
}

GrammarStore::Statistics GrammarStore::statistics() const {
  const std::lock_guard lock(mutex_);
  Statistics statistics = statistics_;
  statistics.compiling = jobs_.size();
  return statistics;
}

GrammarStore::Grammar GrammarStore::find_locked(const std::string& key) {
  if (const auto kept = kept_by_key_.find(key); kept != kept_by_key_.end()) {
    kept_.splice(kept_.begin(), kept_, kept->second);
    return kept->second->grammar;
  }
  const auto known = known_.find(key);
  return known == known_.end() ? nullptr : known->second.lock();
}

GrammarStore::Grammar GrammarStore::find(const request::Constraint& constraint) {
  const std::lock_guard lock(mutex_);
  return find_locked(key_of(constraint));
}

// Returns what is not kept any more, to be destroyed without the lock, which the engine's thread waits for.
std::vector<GrammarStore::Grammar> GrammarStore::keep_locked(const std::string& key, const Grammar& grammar) {
  std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
  known_[key] = grammar;
  kept_.push_front({key, grammar});
  kept_by_key_[key] = kept_.begin();
  // They grow while they are used.
  statistics_.bytes = 0;
  for (const Kept& one : kept_) statistics_.bytes += one.grammar->bytes();
  std::vector<Grammar> dropped;
  while (kept_.size() > 1 && statistics_.bytes > options_.bytes) {
    statistics_.bytes -= std::min(statistics_.bytes, kept_.back().grammar->bytes());
    kept_by_key_.erase(kept_.back().key);
    dropped.push_back(std::move(kept_.back().grammar));
    kept_.pop_back();
  }
  statistics_.entries = kept_.size();
  return dropped;
}

void GrammarStore::get(const request::Constraint& constraint, Ready ready) {
  const std::string key = key_of(constraint);
  Grammar found;
  bool is_given_up = false, is_full = false;
  {
    const std::lock_guard lock(mutex_);
    found = find_locked(key);
    if (found != nullptr) ++statistics_.hits;
    is_full = waiting_.size() + slow_waiting_.size() >= options_.waiting;
    if (const auto job = jobs_.find(key); found == nullptr && job != jobs_.end()) {
      is_given_up = job->second->is_given_up;
      if (!is_given_up) {
        job->second->waiters.push_back({std::move(ready), after(options_.time_limit.count())});
        return;
      }
    }
  }
  if (is_given_up) return ready(too_long(options_.time_limit));
  if (found != nullptr) return ready(std::move(found));
  const Error full{ErrorCode::Unavailable, fmt::format("{} grammars are waiting already", options_.waiting)};
  if (is_full) return ready(full);  // before the work of reading it
  Result<PreparedConstraint> prepared = read_constraint(constraint);
  if (!prepared) return ready(prepared.error());
  auto job = std::make_shared<Job>();
  job->key = key;
  job->prepared = std::move(*prepared);
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() + slow_waiting_.size() < options_.waiting && !stop_) {
      job->waiters.push_back({std::move(ready), after(options_.time_limit.count())});
      // Another thread may have begun the same since; its result is as good.
      if (const auto [place, is_new] = jobs_.emplace(key, job); !is_new)
        std::move(job->waiters.begin(), job->waiters.end(), std::back_inserter(place->second->waiters));
      else
        waiting_.push_back(job);
      start_threads();
      job = nullptr;
    }
  }
  if (job != nullptr) return ready(full);
  changed_.notify_all();
}

Result<GrammarStore::Grammar> GrammarStore::get(const request::Constraint& constraint) {
  auto promise = std::make_shared<std::promise<Result<Grammar>>>();
  std::future<Result<Grammar>> future = promise->get_future();
  get(constraint, [promise](Result<Grammar> grammar) { promise->set_value(std::move(grammar)); });
  return future.get();
}

// REQUIRES: the mutex is held.
void GrammarStore::start_threads() {
  if (stop_) return;
  if (!watcher_.joinable()) watcher_ = std::thread([this] { watch(); });
  while (!waiting_.empty() && !idle_.empty()) {
    const std::shared_ptr<Worker> worker = std::move(idle_.back());
    idle_.pop_back();
    assign(worker);
  }
  while (!waiting_.empty() && quick_ < options_.workers) {
    ++quick_;
    start_worker(take_first(waiting_));
  }
  while (!slow_waiting_.empty() && slow_ < options_.slow_workers) {
    ++slow_;
    slow_waiting_.front()->is_slow = true;
    start_worker(take_first(slow_waiting_));
  }
}

// REQUIRES: the mutex is held, and the worker is counted.
void GrammarStore::start_worker(std::shared_ptr<Job> job) {
  auto worker = std::make_shared<Worker>();
  worker->finish.work = [this, one = std::weak_ptr(worker)] { finish(one.lock()); };
  std::thread([this, worker] { work(*worker); }).detach();
  begin(*worker, std::move(job));
}

// REQUIRES: the mutex is held.
void GrammarStore::begin(Worker& worker, std::shared_ptr<Job> job) {
  job->is_assigned = true;
  if (waiting_.size() >= kCrowd) worker.is_lowered = true;
  worker.job = std::move(job);
  worker.begin.release();
  changed_.notify_all();  // the watcher
}

// Gives the worker the next job, or lets it wait, or end. REQUIRES: the mutex is held; its last job was not slow.
void GrammarStore::assign(const std::shared_ptr<Worker>& worker) {
  if (!stop_ && !waiting_.empty()) return begin(*worker, take_first(waiting_));
  if (!stop_ && !worker->is_lowered) return idle_.push_back(worker);
  --quick_;
  worker_ended_.notify_all();
  worker->begin.release();
}

void GrammarStore::work(Worker& worker) {
  name_thread("grammar");
  lower_thread_priority(kWorkerNiceness);
  shorten_thread_turns();
  while (true) {
    worker.begin.acquire();
    worker.dropped.clear();
    if (worker.job == nullptr) return;
    Job& job = *worker.job;
    job.clock = ThreadClock::of_this_thread();
    if (worker.is_lowered || job.is_slow) job.clock->run_when_idle();
    job.begun = true;
    worker.made = make(job);
    if (worker.made)
      (void)(*worker.made)->bytes();  // the first call walks over all of it: not under the lock
    relay_.post(worker.finish);
  }
}

Result<GrammarStore::Grammar> GrammarStore::make(const Job& job) const {
  PreparedConstraint prepared;
  try {
    prepared = job.prepared;  // which is needed again where the job is postponed
    if (const Status lowered = lower_constraint(prepared); !lowered) return lowered.error();
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::LimitExceeded, "there is no memory for the grammar"};
  }
  return CompiledGrammar::compile(std::move(prepared), vocabulary_, &job.stop);
}

// Its worker was told to stop because enough are slow. REQUIRES: the mutex is held.
void GrammarStore::postpone(const std::shared_ptr<Job>& job) {
  job->stop = job->begun = job->is_assigned = false;
  job->clock.reset();
  slow_waiting_.push_back(job);
}

// Tells those that wait for what the worker has made, and gives it the next job.
void GrammarStore::finish(const std::shared_ptr<Worker>& worker) {
  const std::shared_ptr<Job> job = std::move(worker->job);
  const Result<Grammar> grammar = std::exchange(worker->made, Grammar());
  std::vector<Waiter> waiters;
  std::vector<Grammar> dropped;
  {
    const std::lock_guard lock(mutex_);
    if (!grammar && job->stop && !job->is_given_up && !stop_) {
      postpone(job);
      start_threads();
      return assign(worker);
    }
    waiters.swap(job->waiters);
    jobs_.erase(job->key);
    ++(grammar ? statistics_.compiled : statistics_.failed);
    if (grammar) dropped = keep_locked(job->key, *grammar);
    if (job->is_slow || !waiting_.empty()) worker->dropped.swap(dropped);
    if (job->is_slow) {
      --slow_;
      worker_ended_.notify_all();
      worker->begin.release();
      start_threads();
    } else {
      assign(worker);
    }
  }
  for (const Waiter& waiter : waiters) waiter.ready(grammar);
}

// Another worker takes the place of one whose job is slow, or the job makes way. Returns when to look again. REQUIRES: the
// mutex is held.
TimePoint GrammarStore::demote_slow(TimePoint now) {
  TimePoint next = now + std::chrono::seconds(60);
  for (auto& [key, job] : jobs_) {
    if (!job->is_assigned || job->is_slow || job->stop) continue;
    if (!job->begun || job->clock->seconds() < kQuickSeconds) {
      next = now + kLook;
    } else if (slow_ < options_.slow_workers) {
      job->is_slow = true;
      --quick_;
      ++slow_;
      job->clock->run_when_idle();
    } else {
      job->stop = true;
    }
  }
  return next;
}

// Tells those whose time is over, and sees to it that no worker is kept by a slow grammar.
void GrammarStore::watch() {
  name_thread("grammar-watch");
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const TimePoint now = Clock::now();
    std::vector<Waiter> late;
    TimePoint next = now + std::chrono::seconds(60);
    for (auto& [key, job] : jobs_) {
      const auto is_late = [&](const Waiter& waiter) { return waiter.deadline <= now; };
      const auto split =
          std::stable_partition(job->waiters.begin(), job->waiters.end(), std::not_fn(is_late));
      std::move(split, job->waiters.end(), std::back_inserter(late));
      job->waiters.erase(split, job->waiters.end());
      for (const Waiter& waiter : job->waiters) next = std::min(next, waiter.deadline);
      if (job->waiters.empty()) job->is_given_up = job->stop = true;
    }
    const auto is_given_up = [&](const std::shared_ptr<Job>& job) {
      if (job->is_given_up) jobs_.erase(job->key);
      return job->is_given_up;
    };
    std::erase_if(waiting_, is_given_up);
    std::erase_if(slow_waiting_, is_given_up);
    next = std::min(next, demote_slow(now));
    start_threads();
    if (!late.empty()) {
      lock.unlock();
      for (const Waiter& waiter : late) waiter.ready(too_long(options_.time_limit));
      late.clear();
      lock.lock();
      continue;
    }
    changed_.wait_until(lock, next);
  }
}

}  // namespace sluice::grammar

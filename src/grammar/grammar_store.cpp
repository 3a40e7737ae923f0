#include "grammar/grammar_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <iterator>
#include <new>

#include "base/thread_name.h"

namespace sluice::grammar {

namespace {

constexpr int kMostWorkers = 7;
constexpr int kWorkerNiceness =
    10;  // where every core computes tokens, compiling takes a tenth of one at most
// A worker with so many grammars behind its own is lowered further, and ends with the last of them: a scheduler gives even a
// thread of nice 10 whole ticks of a core, a third of the steps of a small model would meet one.
constexpr size_t kCrowd = 64;
constexpr int kCrowdNiceness = 19;
// Seconds of the processor after which a grammar is slow: its thread then gets what nobody else wants.
constexpr double kQuickSeconds = 0.05;
constexpr std::chrono::milliseconds kLook{10};  // how often the watcher looks for slow ones

void append(std::string& key, std::string_view text) {
  key += fmt::format("{}:", text.size());
  key += text;
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
    : vocabulary_(std::move(vocabulary)), options_(options) {}

GrammarStore::~GrammarStore() {
  std::vector<Waiter> left;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    waiting_.clear();
    for (auto& [key, job] : jobs_)
      std::move(job->waiters.begin(), job->waiters.end(), std::back_inserter(left));
    for (auto& [key, job] : jobs_) {
      job->waiters.clear();
      job->cancelled = true;
    }
  }
  changed_.notify_all();
  for (const Waiter& waiter : left)
    waiter.ready(Error{ErrorCode::Unavailable, "the server is shutting down"});
  if (watcher_.joinable()) watcher_.join();
  std::unique_lock lock(mutex_);
  worker_ended_.wait(lock, [&] { return workers_ == 0; });
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
    is_full = waiting_.size() >= options_.waiting;
    if (const auto job = jobs_.find(key); found == nullptr && job != jobs_.end()) {
      is_given_up = job->second->cancelled;
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
    if (waiting_.size() < options_.waiting && !stop_) {
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
  for (; quick_ < options_.workers && workers_ < kMostWorkers; ++quick_, ++workers_)
    std::thread([this] { work(); }).detach();
}

void GrammarStore::work() {
  name_thread("grammar");
  lower_thread_priority(kWorkerNiceness);
  std::unique_lock lock(mutex_);
  bool is_slow = false, is_lowered = false;
  while (!stop_ && !is_slow) {
    if (waiting_.empty() && is_lowered) break;
    if (waiting_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const std::shared_ptr<Job> job = waiting_.front();
    waiting_.pop_front();
    if (!is_lowered && waiting_.size() >= kCrowd) {
      lower_thread_priority(kCrowdNiceness);
      is_lowered = true;
    }
    job->clock = ThreadClock::of_this_thread();
    changed_.notify_all();  // the watcher
    lock.unlock();
    compile(job);
    lock.lock();
    is_slow = job->is_slow;
  }
  if (!is_slow) --quick_;
  --workers_;
  worker_ended_.notify_all();
}

Result<GrammarStore::Grammar> GrammarStore::make(Job& job) const {
  try {
    if (const Status lowered = lower_constraint(job.prepared); !lowered) return lowered.error();
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::LimitExceeded, "there is no memory for the grammar"};
  }
  return CompiledGrammar::compile(std::move(job.prepared), vocabulary_, &job.cancelled);
}

void GrammarStore::compile(const std::shared_ptr<Job>& job) {
  Result<Grammar> grammar = make(*job);
  if (grammar) (void)(*grammar)->bytes();  // the first call walks over all of it: not under the lock
  std::vector<Waiter> waiters;
  std::vector<Grammar> dropped;
  {
    const std::lock_guard lock(mutex_);
    waiters.swap(job->waiters);
    job->clock.reset();
    jobs_.erase(job->key);
    ++(grammar ? statistics_.compiled : statistics_.failed);
    if (grammar) dropped = keep_locked(job->key, *grammar);
  }
  dropped.clear();
  for (const Waiter& waiter : waiters) waiter.ready(grammar);
}

// Another worker takes the place of one whose job is slow. Returns when to look again. REQUIRES: the mutex is held.
TimePoint GrammarStore::demote_slow(TimePoint now) {
  TimePoint next = now + std::chrono::seconds(60);
  for (auto& [key, job] : jobs_) {
    if (!job->clock || job->is_slow) continue;
    if (job->clock->seconds() < kQuickSeconds && !job->cancelled) {
      next = now + kLook;
      continue;
    }
    job->is_slow = true;
    --quick_;
    job->clock->run_when_idle();
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
      if (job->waiters.empty()) job->cancelled = true;
    }
    std::erase_if(waiting_, [&](const std::shared_ptr<Job>& job) {
      if (!job->waiters.empty()) return false;
      jobs_.erase(job->key);
      return true;
    });
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

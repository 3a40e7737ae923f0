#include "grammar/grammar_store.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <iterator>

#include "base/thread_name.h"

namespace sluice::grammar {

namespace {

constexpr size_t kMostThreads = 8;  // the watcher, and workers of which some are lost for a while
constexpr int kWorkerNiceness = 10;

// Of the calling thread: where every core computes tokens, compiling takes a tenth of one at most.
void give_way_to_others() {
  const auto thread = static_cast<id_t>(gettid());
  setpriority(PRIO_PROCESS, thread, std::max(kWorkerNiceness, getpriority(PRIO_PROCESS, thread)));
}

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
    for (auto& [key, job] : jobs_) job->waiters.clear();
  }
  changed_.notify_all();
  for (const Waiter& waiter : left)
    waiter.ready(Error{ErrorCode::Unavailable, "the server is shutting down"});
  for (std::thread& thread : threads_) thread.join();
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

void GrammarStore::keep_locked(const std::string& key, const Grammar& grammar) {
  std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
  known_[key] = grammar;
  kept_.push_front({key, grammar});
  kept_by_key_[key] = kept_.begin();
  // They grow while they are used.
  statistics_.bytes = 0;
  for (const Kept& one : kept_) statistics_.bytes += one.grammar->bytes();
  while (kept_.size() > 1 && statistics_.bytes > options_.bytes) {
    statistics_.bytes -= std::min(statistics_.bytes, kept_.back().grammar->bytes());
    kept_by_key_.erase(kept_.back().key);
    kept_.pop_back();
  }
  statistics_.entries = kept_.size();
}

void GrammarStore::get(const request::Constraint& constraint, Ready ready) {
  const std::string key = key_of(constraint);
  Grammar found;
  {
    const std::lock_guard lock(mutex_);
    found = find_locked(key);
    if (found != nullptr) ++statistics_.hits;
    if (const auto job = jobs_.find(key); found == nullptr && job != jobs_.end()) {
      job->second->waiters.push_back({std::move(ready), after(options_.time_limit.count())});
      return;
    }
  }
  if (found != nullptr) return ready(std::move(found));
  Result<PreparedConstraint> prepared = prepare(constraint);
  if (!prepared) return ready(prepared.error());
  auto job = std::make_shared<Job>(Job{key, std::move(*prepared), {}});
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
  if (job != nullptr)
    return ready(
        Error{ErrorCode::Unavailable, fmt::format("{} grammars are waiting already", options_.waiting)});
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
  if (threads_.empty()) threads_.emplace_back([this] { watch(); });
  while (idle_or_busy_ < options_.workers && threads_.size() < kMostThreads) {
    ++idle_or_busy_;
    threads_.emplace_back([this] { work(); });
  }
}

void GrammarStore::work() {
  name_thread("grammar");
  give_way_to_others();
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (waiting_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const std::shared_ptr<Job> job = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    compile(job);
    lock.lock();
    // A thread that took too long was replaced by another; both may go on.
    if (job->overdue) ++idle_or_busy_;
  }
}

void GrammarStore::compile(const std::shared_ptr<Job>& job) {
  Result<Grammar> grammar = CompiledGrammar::compile(std::move(job->prepared), vocabulary_);
  std::vector<Waiter> waiters;
  {
    const std::lock_guard lock(mutex_);
    waiters.swap(job->waiters);
    jobs_.erase(job->key);
    ++(grammar ? statistics_.compiled : statistics_.failed);
    if (grammar) keep_locked(job->key, *grammar);
  }
  for (const Waiter& waiter : waiters) waiter.ready(grammar);
}

// Tells those whose time is over, and puts another thread in the place of one that does not come to an end.
void GrammarStore::watch() {
  name_thread("grammar-watch");
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const TimePoint now = Clock::now();
    TimePoint next = now + std::chrono::seconds(60);
    std::vector<Waiter> late;
    for (auto& [key, job] : jobs_) {
      const auto is_late = [&](const Waiter& waiter) { return waiter.deadline <= now; };
      const auto split =
          std::stable_partition(job->waiters.begin(), job->waiters.end(), std::not_fn(is_late));
      std::move(split, job->waiters.end(), std::back_inserter(late));
      job->waiters.erase(split, job->waiters.end());
      for (const Waiter& waiter : job->waiters) next = std::min(next, waiter.deadline);
      const bool runs = std::find(waiting_.begin(), waiting_.end(), job) == waiting_.end();
      if (job->waiters.empty() && runs && !job->overdue) {
        job->overdue = true;
        --idle_or_busy_;
      }
    }
    std::erase_if(waiting_, [&](const std::shared_ptr<Job>& job) {
      if (!job->waiters.empty()) return false;
      jobs_.erase(job->key);
      return true;
    });
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

// Compiled grammars of one vocabulary: made by threads of its own, kept under a bound on memory. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/system/relay.h"
#include "base/system/thread_clock.h"
#include "grammar/compiled_grammar.h"
#include "request/constraint.h"

namespace sluice::grammar {

struct GrammarStoreOptions {
  size_t bytes = size_t{256} << 20;  // of compiled grammars that nobody uses
  int workers = 1;                   // beside those that compile slow ones
  int slow_workers = 0;              // 0: one for every two cores
  Seconds time_limit{20};            // from the request to the grammar
  size_t waiting = 256;              // grammars that are not compiled yet
};

class GrammarStore {
 public:
  using Grammar = std::shared_ptr<const CompiledGrammar>;
  using Ready = std::function<void(Result<Grammar>)>;

  explicit GrammarStore(std::shared_ptr<const Vocabulary> vocabulary, GrammarStoreOptions options = {});
  // Waits for grammars that are being compiled. Whoever still waits gets an error.
  ~GrammarStore();
  GrammarStore(const GrammarStore&) = delete;
  GrammarStore& operator=(const GrammarStore&) = delete;

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  // Calls `ready` once: before it returns where the grammar is known or the constraint cannot be used, else from another
  // thread. What takes longer than the time limit is an error for whoever waits, and is not compiled any further.
  void get(const request::Constraint& constraint, Ready ready);
  // The same, waiting for it.
  Result<Grammar> get(const request::Constraint& constraint);
  // Null where it is not there. A grammar that somebody holds is there.
  Grammar find(const request::Constraint& constraint);

  struct Statistics {
    int64_t compiled = 0, failed = 0, hits = 0;
    size_t bytes = 0, entries = 0;
    size_t compiling = 0;  // or waiting to be
  };
  Statistics statistics() const;

 private:
  struct Waiter {
    Ready ready;
    TimePoint deadline;
  };
  struct Job {
    std::string key;
    PreparedConstraint prepared;
    std::vector<Waiter> waiters;
    std::optional<ThreadClock> clock;  // of its worker, once it has begun
    std::atomic<bool> begun{false};
    std::atomic<bool> stop{false};  // the worker is to end with it soon
    bool is_assigned = false;       // to a worker
    bool is_slow = false;      // its worker gets what nobody else wants of the processor, and ends with it
    bool is_given_up = false;  // nobody waits for it any more
  };
  // A thread of low priority, which takes no lock that others wait for: jobs are brought to it, and a relay takes what it
  // made of them. Nobody joins it, for it may take long to end; it touches nothing but its Worker then.
  struct Worker {
    Semaphore begin;
    std::shared_ptr<Job> job;  // null: it ends
    bool is_lowered = false;   // to run when idle, by a crowd: it ends when nothing waits
    Result<Grammar> made = Grammar();
    std::vector<Grammar> dropped;  // by the store; large ones take long to destroy
    Relay::Task finish;
  };
  struct Kept {
    std::string key;
    Grammar grammar;
  };

  void start_threads();
  void start_worker(std::shared_ptr<Job> job);
  void begin(Worker& worker, std::shared_ptr<Job> job);
  void postpone(const std::shared_ptr<Job>& job);
  void assign(const std::shared_ptr<Worker>& worker);
  void work(Worker& worker);
  void finish(const std::shared_ptr<Worker>& worker);
  void watch();
  TimePoint demote_slow(TimePoint now);
  Result<Grammar> make(const Job& job) const;
  Grammar find_locked(const std::string& key);
  std::vector<Grammar> keep_locked(const std::string& key, const Grammar& grammar);

  std::shared_ptr<const Vocabulary> vocabulary_;
  GrammarStoreOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> waiting_;
  std::deque<std::shared_ptr<Job>> slow_waiting_;     // were begun and turned out slow
  std::map<std::string, std::shared_ptr<Job>> jobs_;  // waiting or running, by key
  std::list<Kept> kept_;                              // used last first
  std::unordered_map<std::string, std::list<Kept>::iterator> kept_by_key_;
  std::unordered_map<std::string, std::weak_ptr<const CompiledGrammar>> known_;
  std::thread watcher_;
  // Workers that have not been told to end, by their jobs.
  int quick_ = 0, slow_ = 0;
  std::vector<std::shared_ptr<Worker>> idle_;
  std::condition_variable worker_ended_;
  bool stop_ = false;
  Statistics statistics_;
  Relay relay_{"grammar-relay"};
};

// The same text for constraints that share a grammar: they differ in what comes before it at most.
std::string key_of(const request::Constraint& constraint);

}  // namespace sluice::grammar

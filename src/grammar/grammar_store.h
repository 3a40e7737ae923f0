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
#include "base/system/thread_clock.h"
#include "grammar/compiled_grammar.h"
#include "request/constraint.h"

namespace sluice::grammar {

struct GrammarStoreOptions {
  size_t bytes = size_t{256} << 20;  // of compiled grammars that nobody uses
  int workers = 1;                   // beside those that compile slow ones
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
    std::optional<ThreadClock> clock;  // of the thread that compiles it
    bool is_slow = false;              // its thread has no say any more and ends with it
    std::atomic<bool> cancelled{false};
  };
  struct Kept {
    std::string key;
    Grammar grammar;
  };

  void start_threads();
  void work();
  void watch();
  TimePoint demote_slow(TimePoint now);
  void compile(const std::shared_ptr<Job>& job);
  Result<Grammar> make(Job& job) const;
  Grammar find_locked(const std::string& key);
  std::vector<Grammar> keep_locked(const std::string& key, const Grammar& grammar);

  std::shared_ptr<const Vocabulary> vocabulary_;
  GrammarStoreOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> waiting_;
  std::map<std::string, std::shared_ptr<Job>> jobs_;  // waiting or running, by key
  std::list<Kept> kept_;                              // used last first
  std::unordered_map<std::string, std::list<Kept>::iterator> kept_by_key_;
  std::unordered_map<std::string, std::weak_ptr<const CompiledGrammar>> known_;
  std::thread watcher_;
  // Workers, which are nobody's to join: one that runs when idle may take long to end.
  int workers_ = 0;
  int quick_ = 0;  // of them: whose job is not slow
  std::condition_variable worker_ended_;
  bool stop_ = false;
  Statistics statistics_;
};

// The same text for constraints that share a grammar: they differ in what comes before it at most.
std::string key_of(const request::Constraint& constraint);

}  // namespace sluice::grammar

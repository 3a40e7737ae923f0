// Threads on which requests are read: JSON, chat templates, tokenizers. Clients take turns, so that one that sends much
// or costly work waits for itself and not others for it.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/system/relay.h"

namespace sluice::server {

class PreparePool {
 public:
  struct Options {
    int slots = 2;          // jobs that run at once
    double time_limit = 0;  // seconds of the processor that one job may use; 0: any number
    double turn = 0.02;     // seconds that a job runs on while other clients wait
    int niceness = 0;       // of its threads, which then take no lock: a relay does for them
  };
  enum class Stop : uint8_t { None, Cancelled, TimeLimit };

  // The work of one request, which asks it how to go on.
  class Job : public Interrupt, public std::enable_shared_from_this<Job> {
   public:
    // The job's own thread. An error: cancelled, or over the time limit. Blocks while others have their turn.
    Status check() override;
    // Why check() gave an error.
    Stop stopped() const { return stopped_; }
    bool cancelled() const { return cancelled_; }

   private:
    friend class PreparePool;
    void begin();
    Status stop(Stop why);

    PreparePool* pool_ = nullptr;
    std::string client_;
    std::function<void(Job&)> work_;
    std::function<void()> done_;
    std::atomic<bool> cancelled_{false};
    std::atomic<Clock::rep> progress_at_{0};  // 0: its thread has not begun
    double cpu_begin_ = 0;
    TimePoint turn_begin_{};
    Stop stopped_ = Stop::None;
    Relay::Task offer_turn_;
    Semaphore resume_;
    bool paused_ = false;  // guarded by the pool's mutex
  };

  explicit PreparePool(Options options);
  ~PreparePool();

  // `work` runs on a thread of the pool when it is the client's turn, unless it is cancelled before, and `done` behind it on
  // a thread of normal priority. Neither may throw.
  std::shared_ptr<Job> post(std::string_view client, std::function<void(Job&)> work,
                            std::function<void()> done = nullptr);
  // On every thread that has nothing to do.
  void run_on_idle(void (*work)());
  // Nobody needs it any more: it is taken out of the queue, or told to stop.
  void cancel(Job& job);
  // Cancels everything and waits for its end. REQUIRES: nothing is posted any more.
  void stop();
  // The longest that running work has gone without a call of check(), in seconds; 0 where nothing runs.
  double stalled() const;

 private:
  struct Client {
    std::string name;
    std::deque<std::shared_ptr<Job>> jobs;  // not empty
  };

  struct Worker {
    Semaphore begin;
    std::shared_ptr<Job> job;  // null: it ends
    Relay::Task finish;
    std::thread thread;
  };

  void run(Worker& worker);
  void relay(Relay::Task& task);
  void finish(Worker& worker);
  void dispatch();
  void begin(Worker& worker, std::shared_ptr<Job> job);
  void resume(Job& job);
  void offer_turn(Job& job);
  bool others_wait(const Job& job) const;
  Client& place_of(std::string_view client);

  const Options options_;
  const size_t most_paused_;
  mutable std::mutex mutex_;
  std::list<Client> ring_;     // who waits; the first is next
  std::vector<Worker*> idle_;  // without a job
  std::vector<Job*> begun_;    // by a worker
  size_t running_ = 0, paused_ = 0;
  bool stopping_ = false;
  std::unique_ptr<Relay> relay_;  // null: threads are as good as others and do it themselves
  std::list<Worker> workers_;
};

}  // namespace sluice::server

// The loop: requests in, events out. One thread owns scheduler, KV manager and executor; the others talk to it
// through an inbox and get what they ask for through their requests' deliver functions.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/system/memory_reserve.h"
#include "engine/events.h"
#include "engine/kv_access.h"
#include "engine/metrics.h"
#include "engine/output_processor.h"
#include "engine/trace.h"
#include "kv/kv_manager.h"
#include "sched/executor.h"
#include "sched/scheduler.h"

namespace sluice::engine {

// What may wait at once, and for how long; running requests are limited by the scheduler. Clients share the places by
// weight: one alone may have all of them, and gives back what is beyond its share, the youngest first, when others come.
struct QueueLimits {
  size_t requests = 1024;
  size_t tokens = size_t{4} << 20;
  size_t bytes = size_t{256} << 20;
  // From arrival to start; whoever waits longer ends as Expired with the error Unavailable. Absent: any time.
  std::optional<Seconds> wait = std::nullopt;
};

struct EngineOptions {
  sched::SchedulerOptions scheduler;
  kv::KvManagerOptions kv_manager;
  QueueLimits queue;
  int vocab = 0;  // token ids are below this
};

struct Health {
  bool failed = false;  // the device is gone for good; nothing is taken in any more
  std::string reason;   // of the failure
  bool busy = false;    // there are requests
  double idle_s = 0;    // since the last step ended, or since the first request came after a pause
};

// The engine at one moment, for people.
struct Snapshot {
  uint64_t step = 0;                         // number of the last one submitted
  std::vector<sched::RequestView> requests;  // started ones, then the oldest waiting
  size_t waiting = 0;                        // all of them
  struct Block {
    enum class State : uint8_t {
      Free,
      Kept,  // for its content only: a cached prefix that nobody uses
      Held,
    };
    State state = State::Free;
    bool shared = false;  // by more than one sequence
    RequestId owner;      // Held: a request that has it in a table
    friend bool operator==(const Block&, const Block&) = default;
  };
  struct Group {
    int window = 0;
    kv::GroupUsage usage;
    std::vector<Block> blocks;  // of the device
  };
  std::vector<Group> groups;
};

class Engine {
 public:
  using Now = std::function<TimePoint()>;
  // The executor outlives the engine. REQUIRES: sched::validate(options.scheduler) is ok.
  Engine(EngineOptions options, sched::Executor& executor, Now now = Clock::now);
  // Requests that are not finished end with an error.
  ~Engine();

  // -- any thread

  // Takes a request in, or says why not: InvalidArgument and LimitExceeded are the request's fault,
  // Unavailable means that too much is waiting or that the engine takes nothing in any more. `deliver` is
  // then called, some time later, with exactly one Finished.
  Result<RequestId> submit(Submission submission);
  // Whether another request of the client could be taken in.
  bool has_place(const std::string& client, double weight) const;
  // Ends a request as soon as the running step is over. What has ended already stays as it is. Takes no memory for the
  // first call for each unfinished request; where others find none, the request goes on.
  void cancel(RequestId id) noexcept;
  // Nothing more will come: submit() refuses, and a batch that waits to fill up starts.
  void close();
  // Waits until all requests have ended. REQUIRES: start() was called.
  void wait_idle();

  const Metrics& metrics() const { return metrics_; }
  Health health() const;
  // The latest one, and asks for a fresh one, which is there after the running step: whoever asks again and again sees
  // the state at about the time of the call before. Null at first.
  std::shared_ptr<const Snapshot> snapshot();
  // Keys of the blocks that prompts can match, likewise. Null at first.
  std::shared_ptr<const kv::PublishedKeys> published_keys();
  const kv::KvManagerOptions& kv_options() const { return options_.kv_manager; }
  KvLayout kv_layout() const;
  // Has the engine's thread work with cached KV blocks. The task is dropped when the engine is destroyed.
  void post(KvTask task);
  // Tasks wait for something else than steps, and it has come.
  void wake_kv_tasks();
  // Steps and ends since the cursor's last read.
  Trace::Page trace(Trace::Cursor& cursor) { return trace_.read(cursor, now_()); }

  // -- the engine's thread: either start() and stop(), or the caller's own loop over step()
  void start();
  void stop();
  // Runs one step; false where there is nothing to do now.
  bool step();
  // When step() could have something to do though nothing new came in.
  std::optional<TimePoint> wake_at() const;

  const kv::KvManager& kv_manager() const { return kv_manager_; }
  const sched::Scheduler& scheduler() const { return scheduler_; }

 private:
  struct Arrival {
    RequestId id;
    Submission submission;
    TimePoint received;
  };
  struct Load {
    size_t requests = 0, tokens = 0, bytes = 0;
  };
  // What a client has waiting.
  struct ClientLoad {
    Load load;
    double weight = 1;
  };
  struct Place {
    Load load;
    std::string client;
  };
  // A step that was submitted.
  struct Flight {
    request::Step step;
    uint64_t number = 0;
    TimePoint begin{};                // of its submission
    std::optional<TracedStep> trace;  // where somebody watches
    int64_t postponed = 0;            // tokens of it that were not run
  };

  static Load load_of(const Submission& submission);
  Status check(const request::Request& request) const;
  // queue_places.cpp
  Status check_place(const std::string& client, double weight, const Load& load) const;
  Status take_place(const Submission& submission);
  void free_place(const Place& place);
  void give_places_back();
  std::optional<std::string> most_borrowing() const;
  void make_room();

  void drain_inbox();
  void take(Arrival arrival);
  bool refuse_overdue(const request::Request& request);
  void end_early(RequestId id, FinishReason reason, std::optional<Error> error = std::nullopt);
  void expire(TimePoint now);
  void watch_gate(const request::Request& request);
  void end_failed_gates();
  void end_starved();
  bool submit_steps(TimePoint now);
  void finish_step();
  void launch(request::Step step, TimePoint planning, TimePoint now);
  void note_start(const request::Step& step, TimePoint now);
  void note_step(Flight& flight, TimePoint now);
  void note_drafts(Flight& flight, const std::vector<request::Outcome>& outcomes);
  TracedStep traced(const Flight& flight) const;
  bool deliver(sched::Progress& progress, TimePoint now);
  void fail_all(const Error& error);
  void publish_state();
  void publish_counters();
  void publish_snapshot();
  void publish_keys();
  void run_kv_tasks();
  void loop();
  bool advance();
  void regain_memory();

  EngineOptions options_;
  sched::Executor& executor_;
  Now now_;
  Metrics metrics_;
  Trace trace_;
  kv::KvManager kv_manager_;
  sched::Scheduler scheduler_;
  OutputProcessor output_;
  std::deque<Flight> in_flight_;
  uint64_t steps_ = 0;                           // submitted
  TimePoint collected_{};                        // end of the last step
  std::optional<TimePoint> unoccupied_since_;    // the executor, while there are requests that could run
  std::unordered_map<RequestId, Place> places_;  // of requests that wait
  std::vector<KvTask> kv_tasks_;                 // that are not done
  std::unordered_map<RequestId, std::shared_ptr<const request::Gate>> gates_;  // that were not open yet

  // shared with other threads
  mutable std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::vector<Arrival> inbox_;
  std::vector<RequestId> cancelled_;  // since the inbox was last emptied
  Load waiting_load_;
  std::unordered_map<std::string, ClientLoad> client_loads_;  // of clients that have something waiting
  double waiting_weight_ = 0;                                 // of these clients
  bool closed_ = false, stopping_ = false, failed_ = false;
  std::string failure_;
  size_t unfinished_ = 0;
  uint64_t next_id_ = 1;
  std::shared_ptr<const Snapshot> snapshot_;
  std::atomic<bool> snapshot_wanted_{false};
  std::shared_ptr<const kv::PublishedKeys> published_keys_;
  std::atomic<bool> keys_wanted_{false};
  std::vector<KvTask> kv_posted_;  // guarded by mutex_
  bool kv_news_ = false;           // guarded by mutex_
  std::atomic<Clock::rep> progress_at_{0};
  std::thread thread_;
  std::optional<MemoryReserve> reserve_;     // of that thread, while it runs
  std::atomic<bool> out_of_reserve_{false};  // nothing is taken in until there is memory again

  // What gates wake; they may be settled after the engine is gone.
  struct Waker {
    std::mutex mutex;
    Engine* engine = nullptr;
  };
  std::shared_ptr<Waker> waker_;
  bool gate_settled_ = false;  // guarded by mutex_
};

}  // namespace sluice::engine

// Who runs next. Pure: no clock, no tensors, no text. A step is planned from the state of the requests and of
// the ledger; what came of it is committed later, and further steps may be planned in between.
//
// Planning is linear in the requests that run, and does not depend on how many wait.
//
// What the clients with work share, in proportion to their weights: the sequences that run, the tokens of a step and the KV
// blocks. A client may borrow what the others leave unused, and gives it back when they want it: choices of its youngest
// request pause, or the request is preempted. Who starts next is the client that has been served least (ClientShares).
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "kv/kv_ledger.h"
#include "request/step.h"
#include "sched/client_shares.h"
#include "sched/entry.h"
#include "sched/options.h"
#include "sched/step_budget.h"
#include "sched/step_cost.h"
#include "sched/waiting_queue.h"

namespace sluice::sched {

// What a request got from a step. The last one of a request has `ended` set, and comes once.
struct Progress {
  request::RequestId request;
  int choice = 0;
  std::vector<request::Sampled> tokens;
  std::vector<request::Sampled> prompt_logprobs;
  std::optional<request::FinishReason> finished;  // of this choice
  bool stop_token = false;                        // the last token ended it and is not part of the text
  std::vector<request::Hypothesis> hypotheses;    // of a search, best first, when it is over
  std::optional<request::Pooled> pooled;          // the vector, where one was asked for
  std::optional<Error> error;
  bool ended = false;  // the request is forgotten
};

struct SchedulerCounters {
  uint64_t started = 0;                                   // requests
  uint64_t prompt_tokens = 0, cached_tokens = 0;          // of started requests
  uint64_t preempted_dropped = 0, preempted_swapped = 0;  // requests
  uint64_t given_back = 0;                                // preempted or paused for a client under its share
  uint64_t kv_lost = 0;                                   // requests that had to compute unreadable KV again
  uint64_t outgrown = 0;  // requests computed again with the rotary frequencies of longer sequences
  uint64_t examined = 0;  // requests looked at by plan()
};

// For a live view.
struct RequestView {
  request::RequestId id;
  std::string client;
  Phase phase = Phase::Waiting;
  TimePoint arrival{};
  int prompt_tokens = 0, preemptions = 0;
  int cached = 0;     // tokens of the prompt that were found in the prefix cache
  int generated = 0;  // tokens of all choices or lanes, ended ones included
  struct LaneView {
    SeqId seq;
    int length = 0, computed = 0;
  };
  std::vector<LaneView> lanes;
};

struct SequenceOwner {
  request::RequestId request;
  int prompt = 0;  // its tokens
};

class Scheduler {
 public:
  // The ledger is shared with the executor and outlives the scheduler. REQUIRES: validate(options) is ok.
  Scheduler(SchedulerOptions options, kv::KvLedger& ledger);
  ~Scheduler();

  const SchedulerOptions& options() const { return options_; }

  // Refuses what could never run, naming the limit. Reads options only, so any thread may call it.
  Status admissible(const request::Request& request) const;

  // REQUIRES: admissible(request), its sampling is valid, its id is new.
  void add(request::Request request);
  // Nothing more will come before a batch has to start; true: static batches start with what there is.
  void set_closed(bool closed) { closed_ = closed; }

  // Ends a request, or one of its choices, at any moment: its blocks are free at once. False where it has
  // ended already. After finish(), says through `ended` whether the whole request is over.
  bool cancel(request::RequestId request);
  bool finish(request::RequestId request, int choice, bool* ended);

  // A step of so many computed tokens took so long.
  void observe(int64_t tokens, double seconds) { cost_.observe(tokens, seconds); }
  // How long the request would take to its first token if it came now, as far as is known.
  Seconds time_to_first_token(const request::Request& request) const;
  // The last request that came of the client's that have not started.
  std::optional<request::RequestId> youngest_waiting(const std::string& client) const;

  // The next step; empty where nothing can run now.
  request::Step plan(TimePoint now);
  // Takes what came of the oldest step that is not committed yet.
  std::vector<Progress> commit(const request::Step& step, std::vector<request::Outcome> outcomes);
  // Forgets all requests, without telling the executor. Their ids, in no order.
  std::vector<request::RequestId> clear();

  bool idle() const { return entries_.empty(); }
  size_t waiting() const { return waiting_.size(); }
  size_t running() const { return running_.size(); }
  size_t preempted() const { return preempted_.size(); }
  // Answers are to be kept back until this is false again.
  bool holding() const { return options_.scheme.holds && batch_rows_ > 0; }
  // When plan() may start a batch that it did not start before, though nothing happened.
  std::optional<TimePoint> wake_at() const;

  // REQUIRES: the sequence belongs to a request that has not ended.
  SequenceOwner owner_of(SeqId seq) const;
  const SchedulerCounters& counters() const { return counters_; }
  uint64_t planning_operations() const { return counters_.examined; }
  const ClientShares& shares() const { return shares_; }
  // Requests that have started, then the oldest `waiting` of those that have not.
  void for_each(size_t waiting, const std::function<void(const RequestView&)>& visit) const;

 private:
  struct LaneRef {
    Entry* entry = nullptr;
    size_t lane = 0;
  };
  // Clients whose next request does not fit, in one step, before those behind them are not looked at.
  static constexpr int kMostPassed = 8;
  // How long a request may be passed before it is waited for.
  static constexpr Seconds kPassedForLong{2};
  // The least that a step is cut down to.
  static constexpr int kLeastStepTokens = 16;
  enum class Pass : uint8_t { Prompts, Tokens };
  // A step in the making.
  struct Draft {
    request::Step step;
    StepBudget budget;
    std::vector<Entry*> victims;  // in order of preference from the back; filled when first needed
    bool victims_known = false;
    bool preempted = false;
    std::vector<Entry*> owed;  // something was given back for them: they start first
    bool shared = false;       // between clients: each has its quota of prompt tokens
  };
  enum class Start : uint8_t { Started, NoRoom, StepFull };

  // plan.cpp
  void plan_running(Draft& draft, Pass pass);
  bool plan_entry(Draft& draft, Entry& entry, bool may_preempt);
  bool plan_group(Draft& draft, Entry& entry, bool may_preempt);
  bool plan_lane(Draft& draft, Entry& entry, Lane& lane, int target, bool may_preempt);
  bool reserve(Draft& draft, Entry& entry, const Lane& lane, int tokens, bool may_preempt);
  void push_work(Draft& draft, Entry& entry, Lane& lane, int tokens);
  int piece(const Draft& draft, const Entry& entry, int want) const;
  int rope_length(const Entry& entry, const Lane& lane) const;
  static int sample_from(Entry& entry, const Lane& lane, int end);
  static bool prompting(const Entry& entry);
  void spread(Draft& draft, Entry& entry);
  void seal(Draft& draft);

  // shares.cpp
  int step_limit() const;
  void part_step(Draft& draft);
  void claim(ClientShares::Client& client, int64_t demand, std::vector<ClientShares::Client*>& claimants);
  void take_back(Draft& draft, TimePoint now);
  bool take_back_seat(Draft& draft, const ClientShares::Client& owed);
  bool take_back_blocks(Draft& draft, const Entry& entry);
  // The youngest request of the client that has most beyond its share, by a measure of what clients have.
  template <class Part>
  Entry* lender_to(const ClientShares::Client& owed, Part part);
  void count_blocks();
  bool lacks_blocks(const Entry& entry) const;
  void grow_grants();
  void set_granted(Entry& entry, int sequences);
  double seat_wait(const ClientShares::Client* client, const WaitingQueue::Ahead& ahead) const;

  // admit.cpp
  void admit(Draft& draft, TimePoint now);
  Start try_start(Draft& draft, Entry& entry, TimePoint now);
  int seats_for(const Entry& entry, TimePoint now) const;
  bool is_aged(const Entry& entry, TimePoint now) const;
  bool batch_may_start(TimePoint now) const;
  bool start(Draft& draft, Entry& entry, int sequences);
  bool bring_back(Entry& entry, int sequences);
  bool set_up(const Draft& draft, Entry& entry, int sequences);
  bool attach(const Draft& draft, Entry& entry, Lane& lane);
  bool promise_if_due(Entry& entry, std::span<const SeqId> family);
  bool leaves_headroom(const Entry& entry, int sequences) const;
  int headroom(int group, int sequences) const;
  Entry* candidate(bool may_join, bool holding) const;
  kv::Demand demand(const request::Request& request) const;
  bool make_room(Draft& draft, Entry& entry);
  void find_victims(Draft& draft);
  void preempt(Draft& draft, Entry& entry);
  void drop_outgrown();
  void compute_again(Entry& entry);
  void drop_blocks(Entry& entry);

  // commit.cpp
  void take_tokens(Entry& entry, size_t lane, request::Tokens tokens, Progress& progress);
  void take_move(Entry& entry, request::SearchMove move, Progress& progress);
  void take_vector(Entry& entry, request::Pooled pooled, Progress& progress);
  void move_lanes(Entry& entry, const std::vector<request::LaneMove>& moves);
  void take_loss(Entry& entry, size_t lost);
  void fail(Entry& entry, Error error, Progress& progress);
  void publish(const request::Step& step, const std::vector<request::Outcome>& outcomes);
  void ask_again(const request::Step& step, const std::vector<request::Outcome>& outcomes);
  bool is_end_token(const request::SamplingParams& sampling, Token token) const;
  std::optional<request::FinishReason> end_of(const Entry& entry, const Lane& lane) const;

  // scheduler.cpp
  void choose_rope_set(Entry& entry, int length) const;
  Entry* find(request::RequestId request);
  SeqId new_seq() { return SeqId{next_seq_++}; }
  std::vector<SeqId> resident_lanes(const Entry& entry) const;
  Lane* leader(Entry& entry);
  void release(const Lane& lane);
  void end_lane(Entry& entry, Lane& lane);
  // Takes the entry out of whatever it is in and forgets it.
  void erase(Entry& entry);
  void leave_queue(Entry& entry);
  static RequestView view_of(const Entry& entry);

  SchedulerOptions options_;
  kv::KvLedger& ledger_;
  std::unordered_map<request::RequestId, std::unique_ptr<Entry>> entries_;
  std::unordered_map<SeqId, LaneRef> lanes_;
  ClientShares shares_;
  WaitingQueue waiting_{shares_};
  StepCost cost_;
  std::list<Entry*> running_;                             // least recently served first, then by age
  std::map<std::pair<int, uint64_t>, Entry*> preempted_;  // by falling priority, then by age
  std::vector<SeqId> retire_;                             // for the next step
  std::vector<request::Lanes> moved_;                     // for the next step
  int seats_taken_ = 0;
  // Rows of the running batch, finished ones included, where requests cannot join; else 0.
  int batch_rows_ = 0;
  bool closed_ = false;
  uint64_t next_seq_ = 1, next_order_ = 1, step_number_ = 0;
  SchedulerCounters counters_;
};

}  // namespace sluice::sched

// Who runs next. Pure: no clock, no tensors, no text. A step is planned from the state of the requests and of
// the KV manager; what came of it is committed later, and further steps may be planned in between.
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
#include <utility>
#include <vector>

#include "base/result.h"
#include "kv/kv_manager.h"
#include "request/step.h"
#include "sched/client_shares.h"
#include "sched/options.h"
#include "sched/request_state.h"
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
  std::vector<float> prompt_attention;            // see request::Outcome
  request::Verified verified;                     // the drafts among its tokens
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
  // The KV manager is shared with the executor and outlives the scheduler. REQUIRES: validate(options) is ok.
  Scheduler(SchedulerOptions options, kv::KvManager& kv_manager);
  ~Scheduler();

  const SchedulerOptions& options() const { return options_; }

  // Refuses what could never run, naming the limit. Reads options only, so any thread may call it.
  Status admissible(const request::Request& request) const;

  // REQUIRES: admissible(request), its sampling is valid, its id is new.
  void add(std::shared_ptr<const request::Request> request);
  void add(request::Request request) { add(std::make_shared<const request::Request>(std::move(request))); }
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
  // Requests that there was no memory for in plan(): they have to be cancelled.
  std::vector<request::RequestId> take_starved() { return std::exchange(starved_, {}); }
  // Whether drafts are verified, or will be: the next step is planned once all that were submitted are committed, so that
  // sequences with drafts and sequences without run in the same steps.
  bool speculates() const;
  // Takes what came of the oldest step that is not committed yet.
  std::vector<Progress> commit(const request::Step& step, std::vector<request::Outcome> outcomes);
  // Forgets all requests, without telling the executor. Their ids, in no order.
  std::vector<request::RequestId> clear();

  bool idle() const { return entries_.empty(); }
  size_t waiting() const { return waiting_.size(); }
  size_t running() const { return running_.size(); }
  size_t preempted() const { return preempted_.size(); }
  // Answers are to be kept back until this is false again.
  bool holding() const { return options_.scheme.deliver_per_batch && batch_rows_ > 0; }
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
  struct SequenceRef {
    RequestState* entry = nullptr;
    size_t lane = 0;
  };
  // Clients whose next request does not fit, in one step, before those behind them are not looked at.
  static constexpr int kMostPassed = 8;
  // How long a request may be passed before it is waited for.
  static constexpr Seconds kPassedForLong{2};
  // The least that a step is cut down to.
  static constexpr int kLeastStepTokens = 16;
  // By TbtOfBatch: how long a step may be in any case.
  static constexpr Seconds kUnnoticedTbt{0.03};
  // By TbtOfBatch: prompts that count as few, in any case and beside so many running answers for each.
  static constexpr int64_t kFewPrompts = 2, kAnswersOfAPrompt = 8;
  // A step in the making.
  struct StepBuilder {
    request::Step step;
    StepBudget budget;
    std::vector<RequestState*> victims;  // in order of preference from the back; filled when first needed
    bool victims_known = false;
    bool preempted = false;
    std::vector<RequestState*> owed;  // something was given back for them: they start first
    bool shared = false;              // between clients: each has its quota of prompt tokens
    int decodes_left = kNoCeiling;    // sequences that decode which the step still takes
  };
  enum class Start : uint8_t { Started, NoRoom, StepFull };

  // plan.cpp
  void part_running();
  void plan_decoding(StepBuilder& builder);
  void plan_each(StepBuilder& builder, const std::vector<RequestState*>& entries);
  bool plan_request(StepBuilder& builder, RequestState& entry, bool may_preempt);
  bool plan_group(StepBuilder& builder, RequestState& entry, bool may_preempt);
  bool plan_lane(StepBuilder& builder, RequestState& entry, SequenceState& lane, int target,
                 bool may_preempt);
  bool reserve(StepBuilder& builder, RequestState& entry, const SequenceState& lane, int tokens,
               bool may_preempt);
  void push_work(StepBuilder& builder, RequestState& entry, SequenceState& lane, int tokens, int drafts = 0);
  int reserve_drafts(const StepBuilder& builder, const RequestState& entry, const SequenceState& lane,
                     int tokens);
  int chunk_size(const StepBuilder& builder, const RequestState& entry, int begin, int target) const;
  int whole_spans(const StepBuilder& builder, const RequestState& entry, int begin, int chunk) const;
  int rope_length(const RequestState& entry, const SequenceState& lane) const;
  static int sample_from(RequestState& entry, const SequenceState& lane, int end);
  static bool is_prefilling(const RequestState& entry);
  bool fork_sequences(StepBuilder& builder, RequestState& entry);
  bool add_choices(RequestState& entry);
  void finish_step(StepBuilder& builder);

  // shares.cpp
  int step_limit() const;
  TbtOfBatch tbt_of_batch() const;
  int64_t tokens_within_tbt() const;
  void part_step(StepBuilder& builder);
  void claim(ClientShares::Client& client, int64_t demand, std::vector<ClientShares::Client*>& claimants);
  void take_back(StepBuilder& builder, TimePoint now);
  bool take_back_seat(StepBuilder& builder, const ClientShares::Client& owed);
  bool take_back_blocks(StepBuilder& builder, const RequestState& entry);
  // The youngest request of the client that has most beyond its share, by a measure of what clients have.
  template <class Part>
  RequestState* lender_to(const ClientShares::Client& owed, Part part);
  void count_blocks();
  bool lacks_blocks(const RequestState& entry) const;
  void grow_grants();
  void set_granted(RequestState& entry, int sequences);
  double seat_wait(const ClientShares::Client* client, const WaitingQueue::Ahead& ahead) const;

  // picture_share.cpp
  bool is_rationed(const RequestState& entry) const;
  request::PictureShare picture_share() const;
  int picture_chunk(const StepBuilder& builder, const RequestState& entry, int begin) const;
  void plan_prompts(StepBuilder& builder);

  // admit.cpp
  void admit(StepBuilder& builder, TimePoint now);
  Start try_start(StepBuilder& builder, RequestState& entry, TimePoint now);
  int seats_for(const RequestState& entry, TimePoint now) const;
  bool is_aged(const RequestState& entry, TimePoint now) const;
  bool batch_may_start(TimePoint now) const;
  bool start(StepBuilder& builder, RequestState& entry, int sequences);
  bool bring_back(RequestState& entry, int sequences);
  bool take_prompt(const RequestState& entry, SequenceState& lane);
  bool set_up(const StepBuilder& builder, RequestState& entry, int sequences);
  bool attach(const StepBuilder& builder, RequestState& entry, SequenceState& lane);
  bool reserve_capacity_if_due(RequestState& entry, std::span<const SeqId> family);
  bool leaves_headroom(const RequestState& entry, int sequences) const;
  int headroom(int group, int sequences) const;
  RequestState* candidate(bool may_join, bool holding) const;
  kv::Demand demand(const request::Request& request) const;
  bool make_room(StepBuilder& builder, RequestState& entry);
  void find_victims(StepBuilder& builder);
  void preempt(StepBuilder& builder, RequestState& entry);
  void drop_outgrown();
  void compute_again(RequestState& entry);
  void drop_blocks(RequestState& entry);

  // commit.cpp
  void take_tokens(RequestState& entry, size_t lane, request::Tokens tokens, Progress& progress);
  void take_move(RequestState& entry, request::SearchMove move, Progress& progress);
  void settle_drafts(RequestState& entry, SequenceState& lane, int accepted);
  void take_vector(RequestState& entry, request::Pooled pooled, Progress& progress);
  static bool has_room(RequestState& entry, size_t lane, const request::Outcome& outcome);
  static std::optional<std::vector<SequenceState>> children_of(const RequestState& entry,
                                                               const std::vector<request::LaneMove>& moves);
  void move_lanes(RequestState& entry, const std::vector<request::LaneMove>& moves,
                  std::vector<SequenceState> next);
  void take_loss(RequestState& entry, size_t lost);
  void put_off(const request::Step& step, RequestState& entry);
  void fail(RequestState& entry, Error error, Progress& progress);
  void take_back_work(const request::Step& step, const std::vector<request::Outcome>& outcomes);
  void ask_again(const request::Step& step, const std::vector<request::Outcome>& outcomes);
  bool is_end_token(const request::SamplingParams& sampling, Token token) const;
  std::optional<request::FinishReason> end_of(const RequestState& entry, const SequenceState& lane) const;

  // scheduler.cpp
  void choose_rope_set(RequestState& entry, int length) const;
  RequestState* find(request::RequestId request);
  SeqId new_seq() { return SeqId{next_seq_++}; }
  std::vector<SeqId> resident_lanes(const RequestState& entry) const;
  SequenceState* first_active(RequestState& entry);
  void release(const SequenceState& lane);
  void end_lane(RequestState& entry, SequenceState& lane);
  // Takes the entry out of whatever it is in and forgets it.
  void erase(RequestState& entry);
  void leave_queue(RequestState& entry);
  static RequestView view_of(const RequestState& entry);

  SchedulerOptions options_;
  kv::KvManager& kv_manager_;
  std::unordered_map<request::RequestId, std::unique_ptr<RequestState>> entries_;
  std::unordered_map<SeqId, SequenceRef> lanes_;
  ClientShares shares_;
  WaitingQueue waiting_{shares_};
  StepCost cost_;
  std::list<RequestState*> running_;                  // least recently served first, then by age
  std::vector<RequestState*> decoding_, prefilling_;  // of these, in the step that is being planned
  std::map<std::pair<int, uint64_t>, RequestState*> preempted_;  // by falling priority, then by age
  std::vector<SeqId> retire_;                                    // for the next step
  std::vector<request::Lanes> moved_;                            // for the next step
  std::vector<request::RequestId> starved_;                      // since they were last taken
  int num_running_sequences_ = 0;
  // Rows of the running batch, finished ones included, where requests cannot join; else 0.
  int batch_rows_ = 0;
  bool closed_ = false;
  uint64_t next_seq_ = 1, next_order_ = 1, step_number_ = 0;
  SchedulerCounters counters_;
};

}  // namespace sluice::sched

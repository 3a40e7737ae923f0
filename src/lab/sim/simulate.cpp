#include "lab/sim/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

namespace sluice::lab {

namespace {

constexpr Token kSimulatedToken = 1;

// Looks a number up that costs more to compute than to keep.
template <class Compute>
double remembered(std::vector<double>& table, int64_t index, Compute compute) {
  if (index >= std::ssize(table)) table.resize(static_cast<size_t>(index) + 1, -1.0);
  double& value = table[static_cast<size_t>(index)];
  if (value < 0) value = compute();
  return value;
}

// An engine with its own clock.
class Replica {
 public:
  Replica(const CostModel& model, const SimulateOptions& options)
      : executor_(options.executor ? options.executor(clock_)
                                   : std::make_unique<CostExecutor>(model, clock_)),
        engine_(options.engine, *executor_, [this] { return clock_.now(); }) {}

  VirtualClock& clock() { return clock_; }
  engine::Engine& engine() { return engine_; }
  int running = 0;
  int64_t requests = 0;
  engine::Trace::Cursor seen;

 private:
  VirtualClock clock_;
  std::unique_ptr<sched::Executor> executor_;
  engine::Engine engine_;
};

class Simulation {
 public:
  Simulation(const CostModel& model, Workload& workload, const SimulateOptions& options)
      : workload_(workload), dispatcher_(workload), options_(options) {
    for (int i = 0; i < options.replicas; ++i) {
      replicas_.push_back(std::make_unique<Replica>(model, options));
      engines_.push_back(&replicas_.back()->engine());
    }
  }

  SimulateResult run() {
    double now = 0;
    while (!dispatcher_.done(now)) {
      Replica* busy = earliest_busy();
      const double arrival = dispatcher_.next_time(now);
      if (busy == nullptr || arrival <= busy->clock().seconds) {
        if (std::isfinite(arrival)) now = std::max(now, arrival);
        if (!send_due(now) && busy == nullptr) break;
        if (dispatcher_.exhausted(now))
          for (const auto& replica : replicas_) replica->engine().close();
        continue;
      }
      now = busy->clock().seconds;
      if (step(*busy)) continue;
      wake(*busy, arrival);
    }
    return result();
  }

 private:
  Replica* earliest_busy() {
    Replica* first = nullptr;
    for (const auto& replica : replicas_)
      if (replica->running > 0 && (first == nullptr || replica->clock().seconds < first->clock().seconds))
        first = replica.get();
    return first;
  }

  // Steps are recorded only for a reader that asked lately, so that it asks before and after.
  bool step(Replica& replica) {
    if (!options_.watch) return replica.engine().step();
    replica.engine().trace(replica.seen);
    const bool went = replica.engine().step();
    for (const auto& traced : replica.engine().trace(replica.seen).steps) options_.watch(*traced);
    return went;
  }

  // An engine that waits for its batch to fill up goes on when it said, or when the next request comes.
  static void wake(Replica& replica, double arrival) {
    const std::optional<TimePoint> at = replica.engine().wake_at();
    double next = arrival;
    if (at) next = std::min(next, seconds_between(TimePoint{}, *at));
    if (!std::isfinite(next)) {
      replica.engine().close();  // a batch that will never be full starts
      next = replica.clock().seconds;
    }
    replica.clock().seconds = std::max(replica.clock().seconds + 1e-6, next);
  }

  bool send_due(double now) {
    bool any = false;
    while (std::optional<LoadRequest> request = dispatcher_.take(now)) {
      any = true;
      // Whoever waited for a place starts when one became free.
      const WorkloadOptions& load = workload_.options();
      const bool waited = !std::isfinite(load.rate) && !load.listed_times;
      const bool full = load.concurrency > 0 && dispatcher_.running() == load.concurrency;
      const double at = waited || full ? std::max(request->at, last_end_) : request->at;
      send(std::move(*request), at);
    }
    return any;
  }

  ReplicaPolicy::Choice choose(const std::vector<Token>& prompt, double now) {
    if (options_.policy != nullptr) return options_.policy->choose(prompt, engines_, now);
    const auto fewest =
        std::min_element(replicas_.begin(), replicas_.end(),
                         [](const auto& a, const auto& b) { return a->running < b->running; });
    return {static_cast<size_t>(fewest - replicas_.begin()), 0};
  }

  void send(LoadRequest request, double now) {
    const auto choice = std::make_shared<ReplicaPolicy::Choice>(choose(request.prompt, now));
    Replica& replica = *replicas_[choice->replica];
    ++replica.requests;
    if (replica.running == 0) replica.clock().seconds = std::max(replica.clock().seconds, now);
    auto record = std::make_shared<LoadRecord>();
    record->start = now;
    record->input = static_cast<int>(request.prompt.size());
    const bool keeps = records_.size() < options_.kept_arrivals, counted = request.counted;
    engine::Submission submission;
    submission.request.prompt = std::move(request.prompt);
    submission.request.sampling().max_tokens = request.output;
    submission.request.sampling().ignore_eos = true;
    submission.request.sampling().method = request::Sampling{.temperature = 0};
    submission.deliver = [this, record, keeps, counted, choice, &replica](const engine::Event& event) {
      const double at = replica.clock().seconds;
      if (const auto* delta = std::get_if<engine::Delta>(&event)) {
        if (record->output == 0) begin(*record, *choice, at);
        record->output += static_cast<int>(delta->tokens.size());
        record->end = at;
        if (keeps) record->arrivals.push_back(static_cast<float>(at));
      } else if (const auto* finished = std::get_if<engine::Finished>(&event)) {
        end(*record, counted, *choice, finished->error ? finished->error->message : "");
      }
    };
    ++replica.running;
    const auto id = replica.engine().submit(std::move(submission));
    if (!id) end(*record, counted, *choice, id.error().message);
  }

  void begin(LoadRecord& record, ReplicaPolicy::Choice& choice, double now) {
    record.first = now;
    if (options_.policy != nullptr) options_.policy->began(choice);
    choice.missing = 0;
  }

  void end(LoadRecord& record, bool counted, const ReplicaPolicy::Choice& choice, std::string error) {
    Replica& replica = *replicas_[choice.replica];
    if (options_.policy != nullptr) options_.policy->ended(choice);
    record.error = std::move(error);
    if (record.output == 0) record.first = record.end = replica.clock().seconds;
    if (counted) records_.push_back(std::move(record));
    --replica.running;
    last_end_ = std::max(last_end_, replica.clock().seconds);
    dispatcher_.ended();
  }

  SimulateResult result() {
    SimulateResult out;
    int64_t most = 0, all = 0;
    for (const auto& replica : replicas_) {
      most = std::max(most, replica->requests);
      all += replica->requests;
      const engine::Metrics& metrics = replica->engine().metrics();
      out.steps += metrics.steps.value();
      out.run_tokens += double(metrics.run_tokens.value());
      out.computed_tokens += double(metrics.computed_tokens.value());
      out.cached_tokens += double(metrics.cached_tokens.value());
      out.prompt_tokens += double(metrics.prompt_tokens.value());
      out.preempted += metrics.preempted_dropped.value() + metrics.preempted_swapped.value();
    }
    if (all > 0) out.imbalance = double(most) * double(replicas_.size()) / double(all);
    double begin = std::numeric_limits<double>::infinity(), last = 0;
    for (const LoadRecord& record : records_) {
      begin = std::min(begin, record.start);
      last = std::max(last, record.end);
    }
    out.load.duration = records_.empty() ? 0 : last - begin;
    out.load.records = std::move(records_);
    return out;
  }

  const Workload& workload_;
  Dispatcher dispatcher_;
  const SimulateOptions& options_;
  double last_end_ = 0;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<engine::Engine*> engines_;
  std::vector<LoadRecord> records_;
};

}  // namespace

TimePoint VirtualClock::now() const {
  return TimePoint{} + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
}

double CostExecutor::token_seconds(int64_t tokens, int64_t logit_rows) {
  const double layers =
      remembered(by_tokens_, tokens, [&] { return model_.token_seconds(double(tokens), 0); });
  if (logit_rows == 0) return layers;
  return layers + remembered(by_rows_, logit_rows, [&] {
           return model_.token_seconds(1, double(logit_rows)) - model_.token_seconds(1, 0);
         });
}

double CostExecutor::seconds(const request::Step& step) {
  if (step.work.empty()) return 0;
  int64_t rows = 0;
  double attention = 0;
  const auto decoding = static_cast<int>(std::count_if(
      step.work.begin(), step.work.end(), [](const auto& work) { return work.end - work.begin == 1; }));
  for (const request::Work& work : step.work) {
    const int queries = work.end - work.begin;
    rows += work.end - work.sample_from;
    attention += model_.attention_seconds(queries, work.begin, queries == 1 ? decoding : 1);
  }
  return token_seconds(step.computed_tokens(), rows) + attention;
}

void CostExecutor::submit(const request::Step& step) {
  Running run{.seconds = seconds(step), .outcomes = {}};
  run.outcomes.reserve(step.work.size());
  for (const request::Work& work : step.work) {
    if (work.sample_from >= work.end) continue;
    request::Outcome& outcome = run.outcomes.emplace_back();
    outcome.seq = work.seq;
    outcome.result.emplace<request::Tokens>().tokens.push_back({.token = kSimulatedToken});
  }
  running_.push_back(std::move(run));
}

Result<std::vector<request::Outcome>> CostExecutor::collect() {
  Running run = std::move(running_.front());
  running_.pop_front();
  clock_.seconds += run.seconds;
  return std::move(run.outcomes);
}

Status CostExecutor::reset() {
  running_.clear();
  return {};
}

SimulateResult simulate(const CostModel& model, Workload& workload, const SimulateOptions& options) {
  return Simulation(model, workload, options).run();
}

}  // namespace sluice::lab

#include "lab/speculate/speculate_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "base/clock.h"

namespace sluice::lab {

namespace {

using request::Speculation;
using Answers = std::vector<std::vector<Token>>;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

struct Run {
  double seconds = 0;
  Answers answers;
  uint64_t drafted = 0, accepted = 0, generated = 0, steps = 0;
  double expected = 0, cost = 0;  // accepted drafts, and time in steps without any
  double exposed = 0;             // seconds
};

// Requests that were sent, until all have ended.
class Load {
 public:
  explicit Load(engine::Engine& engine) : engine_(engine) {}

  void send(request::Request request, std::vector<Token>& answer) {
    {
      const std::lock_guard lock(mutex_);
      ++open_;
    }
    engine::Submission submission;
    submission.request = std::move(request);
    submission.deliver = [this, &answer](const engine::Event& event) {
      if (const auto* delta = std::get_if<engine::Delta>(&event))
        for (const request::Sampled& sampled : delta->tokens) answer.push_back(sampled.token);
      if (const auto* finished = std::get_if<engine::Finished>(&event)) end(finished->error);
    };
    const auto sent = engine_.submit(std::move(submission));
    if (!sent) end(sent.error());
  }
  // Until so many are left.
  Status wait(int left = 0) {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return open_ <= left; });
    if (error_) return *error_;
    return {};
  }

 private:
  void end(const std::optional<Error>& error) {
    const std::lock_guard lock(mutex_);
    if (error && !error_) error_ = error;
    --open_;
    ended_.notify_one();
  }

  engine::Engine& engine_;
  std::mutex mutex_;
  std::condition_variable ended_;
  int open_ = 0;
  std::optional<Error> error_;
};

class Bench {
 public:
  explicit Bench(const SpeculateBench& options) : options_(options) {}

  Result<std::vector<SpeculatePoint>> run(const std::function<void(const SpeculatePoint&)>& done) {
    std::vector<SpeculatePoint> points;
    for (const SpeculateWorkload& workload : options_.workloads) {
      std::vector<std::vector<Token>> prompts;
      for (const std::string& text : workload.prompts) {
        Result<std::vector<Token>> tokens = options_.encode(text);
        if (!tokens) return tokens.error();
        prompts.push_back(std::move(*tokens));
      }
      for (const int batch : options_.batches) {
        Result<std::vector<SpeculatePoint>> made = measure(workload.name, prompts, batch);
        if (!made) return made.error();
        for (const SpeculatePoint& point : *made) {
          done(point);
          points.push_back(point);
        }
      }
    }
    return points;
  }

 private:
  // Of one workload and batch, without drafts first.
  Result<std::vector<SpeculatePoint>> measure(std::string_view workload,
                                              const std::vector<std::vector<Token>>& prompts, int batch) {
    std::vector<Speculation> proposers{Speculation::Off};
    for (const Speculation proposer : options_.proposers)
      if (proposer != Speculation::Off) proposers.push_back(proposer);
    std::vector<std::vector<Run>> runs(proposers.size());
    for (size_t i = 1; i < proposers.size(); ++i)
      if (const Result<Run> unmeasured = run_all(prompts, batch, proposers[i]); !unmeasured)
        return unmeasured.error();
    for (int round = 0; round < options_.rounds; ++round) {
      for (size_t i = 0; i < proposers.size(); ++i) {
        Result<Run> run = run_all(prompts, batch, proposers[i]);
        if (!run) return run.error();
        if (!options_.forced && run->answers != (i == 0 && round == 0 ? run->answers : runs[0][0].answers))
          return Error{ErrorCode::Internal, fmt::format("{}, batch {}: an answer with {} is another one",
                                                        workload, batch, name(proposers[i]))};
        runs[i].push_back(std::move(*run));
      }
    }
    std::vector<SpeculatePoint> points;
    for (size_t i = 0; i < proposers.size(); ++i) {
      SpeculatePoint& point = points.emplace_back(summed_up(runs[i], runs[0]));
      point.workload = workload;
      point.batch = batch;
      point.proposer = proposers[i];
    }
    return points;
  }

  static SpeculatePoint summed_up(const std::vector<Run>& runs, const std::vector<Run>& plain) {
    std::vector<double> speeds, gains;
    double generated = 0, drafted = 0, accepted = 0, expected = 0, cost = 0, exposed = 0, seconds = 0;
    double steps = 0, plain_steps = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
      const Run& run = runs[i];
      speeds.push_back(static_cast<double>(run.generated) / run.seconds);
      gains.push_back(plain[i].seconds / run.seconds);
      generated += static_cast<double>(run.generated);
      drafted += static_cast<double>(run.drafted);
      accepted += static_cast<double>(run.accepted);
      expected += run.expected;
      cost += run.cost;
      exposed += run.exposed;
      seconds += run.seconds;
      steps += static_cast<double>(run.steps);
      plain_steps += static_cast<double>(plain[i].steps);
    }
    const double passes = generated - accepted;
    SpeculatePoint point{.tokens_per_second = median(speeds), .gain = median(gains)};
    point.tokens_per_pass = generated / std::max(1.0, passes);
    // Steps that ran, with fewer sequences where the last ones end, as many more or fewer as drafts were taken to be right.
    // Costs are those of whole steps, which all their sequences share.
    const double expected_steps = steps * generated / std::max(1.0, passes + expected);
    point.expected = plain_steps / std::max(1.0, expected_steps * (1 + cost / std::max(1.0, steps)));
    point.exposed = exposed / seconds;
    point.drafted = static_cast<uint64_t>(drafted);
    point.accepted = static_cast<uint64_t>(accepted);
    return point;
  }

  request::Request request_of(const std::vector<std::vector<Token>>& prompts, size_t index, int tokens,
                              Speculation proposer) const {
    request::Request request;
    request.prompt = prompts[index % prompts.size()];
    request.cache_salt = fmt::format("bench speculate {} {}", salt_, index / prompts.size());
    request.sampling().max_tokens = tokens;
    request.sampling().ignore_eos = true;
    request.sampling().method = request::Sampling{.temperature = 0};
    request.sampling().speculate = proposer;
    return request;
  }

  // Every prompt at least once, `batch` requests at any time: where one ends, the next one starts. Each run, and each
  // time that a prompt is asked in it, has a salt of its own: nobody finds the same answer among earlier ones.
  Result<Run> run_all(const std::vector<std::vector<Token>>& prompts, int batch, Speculation proposer) {
    ++salt_;
    constexpr int kTurns = 4;
    const size_t count = std::max(prompts.size(), static_cast<size_t>(batch == 1 ? 1 : kTurns * batch));
    Run run;
    run.answers.resize(count);
    Answers unused(count);
    Load warm(*options_.engine);
    for (size_t i = 0; i < count; ++i) warm.send(request_of(prompts, i, 1, Speculation::Off), unused[i]);
    if (Status status = warm.wait(); !status) return status.error();
    const engine::Metrics& metrics = options_.engine->metrics();
    note(metrics, run, -1);
    Load load(*options_.engine);
    const TimePoint start = Clock::now();
    for (size_t i = 0; i < count; ++i) {
      if (Status status = load.wait(batch - 1); !status) break;
      load.send(request_of(prompts, i, options_.tokens, proposer), run.answers[i]);
    }
    if (Status status = load.wait(); !status) return status.error();
    run.seconds = seconds_since(start);
    note(metrics, run, 1);
    return run;
  }

  static void note(const engine::Metrics& metrics, Run& run, int sign) {
    const auto add = [&](uint64_t& to, uint64_t value) { to += sign > 0 ? value : uint64_t{0} - value; };
    add(run.generated, metrics.generated_tokens.value());
    add(run.drafted, metrics.drafted_tokens.value());
    add(run.accepted, metrics.accepted_drafts.value());
    add(run.steps, metrics.steps.value());
    run.exposed += sign * metrics.exposed_time.sum();
    for (const engine::Metrics::Proposer& by : metrics.proposers) {
      run.expected += sign * static_cast<double>(by.expected.value()) / 1000;
      run.cost += sign * static_cast<double>(by.cost.value()) / 1000;
    }
  }

  const SpeculateBench& options_;
  uint64_t salt_ = 0;
};

}  // namespace

Result<std::vector<SpeculatePoint>> run_speculate_bench(
    const SpeculateBench& bench, const std::function<void(const SpeculatePoint&)>& done) {
  return Bench(bench).run(done);
}

std::string speculate_header() {
  return "| prompts | batch | proposer | tok/s | gain | expected | tokens a pass | drafted | accepted | host "
         "|\n"
         "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|\n";
}

std::string speculate_row(const SpeculatePoint& point) {
  return fmt::format("| {} | {} | {} | {:.0f} | {:.2f} | {:.2f} | {:.2f} | {} | {} | {:.1f} % |\n",
                     point.workload, point.batch, name(point.proposer), point.tokens_per_second, point.gain,
                     point.expected, point.tokens_per_pass, point.drafted, point.accepted,
                     100 * point.exposed);
}

json::array speculate_json(const std::vector<SpeculatePoint>& points) {
  json::array out;
  for (const SpeculatePoint& point : points)
    out.push_back(json::object{{"workload", point.workload},
                               {"batch", point.batch},
                               {"proposer", name(point.proposer)},
                               {"tokens_per_second", point.tokens_per_second},
                               {"gain", point.gain},
                               {"expected_gain", point.expected},
                               {"tokens_per_pass", point.tokens_per_pass},
                               {"drafted", point.drafted},
                               {"accepted", point.accepted},
                               {"host_share", point.exposed}});
  return out;
}

}  // namespace sluice::lab

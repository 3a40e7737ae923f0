#include "lab/sim/play.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "base/options.h"
#include "lab/load/load_report.h"
#include "lab/sim/simulate.h"

namespace sluice::lab {

namespace {

struct PlayedScheme {
  const char *name, *about;
  std::vector<std::string> settings;
};

std::vector<PlayedScheme> played_schemes() {
  return {
      {"static",
       "A batch starts when it is full and ends with its longest answer.",
       {"scheme=static", "layout=padded"}},
      {"dynamic",
       "As static, but a batch that is not full starts after a while.",
       {"scheme=dynamic", "layout=padded"}},
      {"iteration",
       "Requests join and leave at any step; rows are padded to the longest.",
       {"scheme=iteration", "layout=padded"}},
      {"continuous",
       "Requests join at any step, prompts come in pieces, nothing is padded.",
       {"scheme=continuous", "layout=packed"}},
  };
}

// What one request did, joined where it went on without a pause.
struct LaneSpan {
  double begin = 0, end = 0;
  int kind = 0;
};

class LaneRecorder {
 public:
  void take(const engine::TracedStep& step) {
    const double begin = seconds_between(TimePoint{}, step.begin), end = begin + step.seconds;
    for (const engine::TracedWork& work : step.work) {
      const int kind = work.kind == engine::WorkKind::Decode ? 1 : 0;
      std::vector<LaneSpan>& spans = lanes_[work.request.value];
      constexpr double kPause = 1e-6;
      if (!spans.empty() && spans.back().kind == kind && begin - spans.back().end < kPause) {
        spans.back().end = end;
      } else {
        spans.push_back({begin, end, kind});
      }
    }
  }
  // Ids grow with the order in which requests came.
  json::array lanes() const {
    json::array out;
    for (const auto& [id, spans] : lanes_) {
      json::array lane;
      for (const LaneSpan& span : spans) lane.push_back(json::array{span.begin, span.end, span.kind});
      out.push_back(std::move(lane));
    }
    return out;
  }

 private:
  std::map<uint64_t, std::vector<LaneSpan>> lanes_;
};

json::object played_json(const PlayedScheme& scheme, const SimulateResult& result,
                         const LaneRecorder& recorder) {
  std::vector<double> ttft, tpot;
  double generated = 0;
  for (const LoadRecord& record : result.load.records) {
    ttft.push_back(record.first - record.start);
    if (record.output > 1) tpot.push_back((record.end - record.first) / (record.output - 1));
    generated += record.output;
  }
  std::sort(ttft.begin(), ttft.end());
  std::sort(tpot.begin(), tpot.end());
  const double seconds = result.load.duration;
  return {{"name", scheme.name},
          {"about", scheme.about},
          {"seconds", seconds},
          {"tokens_per_s", seconds > 0 ? generated / seconds : 0},
          {"ttft_p50_s", percentile(ttft, 50)},
          {"ttft_p99_s", percentile(ttft, 99)},
          {"tpot_p50_s", tpot.empty() ? 0 : percentile(tpot, 50)},
          {"padding", 1 - result.run_tokens / std::max(1.0, result.computed_tokens)},
          {"preempted", result.preempted},
          {"lanes", recorder.lanes()}};
}

Result<json::object> play_one(const CostModel& model, llm::EngineFlags flags, const PlayedScheme& scheme,
                              const WorkloadOptions& load) {
  OptionSet known;
  flags.declare(known);
  if (Status status = set_values(known, scheme.settings); !status) return status.error();
  Result<llm::EngineSetup> setup = llm::make_setup(flags, model.sheet().spec, model.sheet().name, {});
  if (!setup) return setup.error();
  LaneRecorder recorder;
  SimulateOptions options;
  options.engine = {
      .scheduler = setup->scheduler,
      .kv_manager = setup->kv_manager,
      .queue = {.requests = size_t{1} << 40, .tokens = size_t{1} << 50, .bytes = size_t{1} << 60},
      .vocab = model.sheet().spec.vocab};
  options.kept_arrivals = 0;
  options.watch = [&](const engine::TracedStep& step) { recorder.take(step); };
  Workload workload(load);
  const SimulateResult result = simulate(model, workload, options);
  for (const LoadRecord& record : result.load.records)
    if (!record.error.empty()) return Error{ErrorCode::InvalidArgument, record.error};
  return played_json(scheme, result, recorder);
}

}  // namespace

Result<json::object> play_schemes(const CostModel& model, const llm::EngineFlags& flags,
                                  const std::vector<ListedRequest>& requests, Interrupt* interrupt) {
  WorkloadOptions load;
  load.requests = std::ssize(requests);
  load.listed = requests;
  load.listed_times = true;
  load.vocab = std::min(load.vocab, model.sheet().spec.vocab);
  load.first_token = std::min(load.first_token, load.vocab / 2);
  json::array played, rows;
  for (const PlayedScheme& scheme : played_schemes()) {
    if (interrupt != nullptr)
      if (Status status = interrupt->check(); !status) return status.error();
    Result<json::object> one = play_one(model, flags, scheme, load);
    if (!one)
      return Error{one.error().code, fmt::format("{} batching: {}", scheme.name, one.error().message)};
    played.push_back(std::move(*one));
  }
  for (const ListedRequest& request : requests)
    rows.push_back(json::array{request.at, request.input, request.output});
  return json::object{{"requests", std::move(rows)}, {"schemes", std::move(played)}};
}

}  // namespace sluice::lab

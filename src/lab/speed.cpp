#include "lab/speed.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/system/memory.h"
#include "lab/measure/track.h"

namespace sluice::lab {

namespace {

int largest(const std::vector<int>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

Floor floor_of(const models::Model& model, const SpeedOptions& options, const SpeedTest& test,
               const Limits& limits) {
  if (test.kind == SpeedTest::Kind::Answer) {
    const StepShape middle{test.batch, 1, test.depth + (test.tokens - 1) / 2.0};
    const Floor step = step_floor(step_cost(model, options.kv_type, middle), limits);
    return {step.seconds * test.tokens, step.bound};
  }
  Floor sum;
  for (int begin = 0; begin < test.tokens; begin += options.step_tokens) {
    const StepShape shape{1, std::min(options.step_tokens, test.tokens - begin), double(test.depth + begin)};
    const Floor step = step_floor(step_cost(model, options.kv_type, shape), limits);
    sum = {sum.seconds + step.seconds, step.bound};
  }
  return sum;
}

void run_once(Track& track, const SpeedTest& test) {
  if (test.kind == SpeedTest::Kind::Prompt) {
    track.read_prompt(test.depth, test.tokens);
    return;
  }
  for (int i = 0; i < test.tokens; ++i) track.write_token(test.batch, test.depth + i);
}

void warm_up(Track& track, SpeedTest test) {
  if (test.kind == SpeedTest::Kind::Answer) test.tokens = std::min(test.tokens, 2);
  run_once(track, test);
}

std::vector<SpeedTest> tests_at(const SpeedOptions& options, int depth) {
  std::vector<SpeedTest> tests;
  for (int tokens : options.prompts) tests.push_back({SpeedTest::Kind::Prompt, tokens, 1, depth});
  for (int tokens : options.answers)
    for (int batch : options.batches) tests.push_back({SpeedTest::Kind::Answer, tokens, batch, depth});
  return tests;
}

Status check(const models::Model& model, const SpeedOptions& options) {
  const int positions =
      largest(options.depths) + std::max(largest(options.prompts), largest(options.answers));
  if (positions > model.spec().context)
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("depth and tokens make {} positions, the model has {}", positions, model.spec().context)};
  const int64_t bytes = models::kv_bytes_per_token(model.spec(), options.kv_type) * positions *
                        std::max(1, largest(options.batches));
  const int64_t free = memory_room().bytes;
  if (bytes > free)
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("{} sequences of {} positions need {} bytes of KV, {} are available",
                             largest(options.batches), positions, bytes, free)};
  return {};
}

}  // namespace

std::string SpeedTest::name() const {
  return fmt::format("{}{}{}{}", kind == Kind::Prompt ? "pp" : "tg", tokens,
                     batch > 1 ? fmt::format(" x{}", batch) : "",
                     depth > 0 ? fmt::format(" @ d{}", depth) : "");
}

double SpeedResult::median() const {
  const size_t half = seconds.size() / 2;
  return seconds.size() % 2 == 1 ? seconds[half] : (seconds[half - 1] + seconds[half]) / 2;
}

Result<std::vector<SpeedResult>> measure_speed(const models::Model& model, const SpeedOptions& options,
                                               const std::optional<Limits>& limits,
                                               const std::function<void(const SpeedResult&)>& done) {
  if (Status status = check(model, options); !status) return status.error();
  std::vector<SpeedResult> results;
  for (int depth : options.depths) {
    const int sequences = options.answers.empty() ? 1 : std::max(1, largest(options.batches));
    const int positions = depth + std::max(largest(options.prompts), largest(options.answers));
    Result<std::unique_ptr<Track>> track = Track::make(model, options, sequences, positions);
    if (!track) return track.error();
    (*track)->fill(depth);
    for (const SpeedTest& test : tests_at(options, depth)) {
      SpeedResult result{test, {}, {}, {}};
      if (limits) result.floor = floor_of(model, options, test, *limits);
      warm_up(**track, test);
      for (int i = 0; i < options.repeat; ++i) {
        if (options.profiled != nullptr) options.profiled->clear();
        const Stopwatch watch(options.time);
        run_once(**track, test);
        result.seconds.push_back(watch.seconds());
      }
      if (options.profiled != nullptr) result.operations = options.profiled->costs();
      std::sort(result.seconds.begin(), result.seconds.end());
      done(result);
      results.push_back(std::move(result));
    }
  }
  return results;
}

}  // namespace sluice::lab

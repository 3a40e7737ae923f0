#include "lab/plan/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/system/memory.h"
#include "lab/measure/track.h"
#include "lab/plan/plan_units.h"
#include "lab/speed.h"

namespace sluice::lab {

namespace {

constexpr int kMostTokens = 8;        // of a measured answer
constexpr double kEnoughSeconds = 2;  // of an answer; few tokens are enough where each takes long

struct MeasuredCell {
  int context = 0;
  int batch = 0;                // 0: the prompt
  std::vector<double> seconds;  // of the prompt or of a token, one for each round

  std::string name() const {
    return batch == 0 ? fmt::format("prefill {}", context) : fmt::format("decode x{} at {}", batch, context);
  }
};

// Sequences of one context. Reading the prompt is a measurement and makes the content that decode reads.
struct ContextTrack {
  int context = 0;
  std::unique_ptr<Track> track;
  std::vector<MeasuredCell> cells;  // the prompt first
};

class Verification {
 public:
  Verification(const Plan& plan, const models::Model& model, const VerifyOptions& options,
               const std::function<void(const std::string&)>& progress)
      : plan_(plan), model_(model), options_(options), progress_(progress) {
    speed_.step_tokens = plan_step_tokens(plan.options, plan.model.machine());
    speed_.kv_type = plan.model.sheet().kv_type;
  }

  Status open() {
    int64_t room = memory_room().bytes / 2;
    for (const int context : plan_.options.contexts) {
      if (context > options_.prompt_tokens) continue;
      const int positions = context + kMostTokens;
      if (positions > model_.spec().context)
        return Error{ErrorCode::InvalidArgument,
                     fmt::format("--context {} and {} more tokens are {} positions, the model has {}",
                                 context, kMostTokens, positions, model_.spec().context)};
      const int64_t each = models::kv_bytes_per_token(model_.spec(), speed_.kv_type) * positions;
      ContextTrack one{context, nullptr, {MeasuredCell{context, 0, {}}}};
      int sequences = 1;
      for (const int batch : plan_.options.batches) {
        if (batch * each > room) continue;
        one.cells.push_back({context, batch, {}});
        sequences = std::max(sequences, batch);
      }
      room -= sequences * each;
      Result<std::unique_ptr<Track>> track = Track::make(model_, speed_, sequences, positions);
      if (!track) return track.error();
      one.track = std::move(*track);
      tracks_.push_back(std::move(one));
    }
    return {};
  }

  void run_round(int round) {
    for (ContextTrack& one : tracks_) {
      for (MeasuredCell& cell : one.cells) {
        progress_(fmt::format("{}, round {} of {}", cell.name(), round + 1, options_.repeat));
        if (options_.calibration != nullptr) options_.calibration->sample();
        cell.seconds.push_back(cell.batch == 0 ? prompt_seconds(one) : token_seconds(one, cell.batch));
      }
    }
  }

  std::vector<VerifiedCell> cells() const {
    Machine machine = plan_.model.machine();
    if (options_.calibration != nullptr) options_.calibration->apply(machine);
    const CostModel model(plan_.model.sheet(), machine);
    std::vector<VerifiedCell> prompts, answers;
    for (const ContextTrack& one : tracks_)
      for (const MeasuredCell& cell : one.cells)
        (cell.batch == 0 ? prompts : answers).push_back(verified(cell, model));
    prompts.insert(prompts.end(), answers.begin(), answers.end());
    return prompts;
  }

 private:
  double prompt_seconds(ContextTrack& one) const {
    const Stopwatch watch(options_.time);
    one.track->read_prompt(0, one.context);
    const double seconds = watch.seconds();
    one.track->spread(one.context);
    return seconds;
  }

  // The first token goes unmeasured and says how many follow.
  double token_seconds(ContextTrack& one, int batch) const {
    const Stopwatch first(options_.time);
    one.track->write_token(batch, one.context);
    const int tokens = std::clamp(static_cast<int>(kEnoughSeconds / first.seconds()), 1, kMostTokens - 1);
    const Stopwatch watch(options_.time);
    for (int i = 1; i <= tokens; ++i) one.track->write_token(batch, one.context + i);
    return watch.seconds() / tokens;
  }

  VerifiedCell verified(const MeasuredCell& cell, const CostModel& model) const {
    SpeedResult result;
    result.seconds = cell.seconds;
    std::sort(result.seconds.begin(), result.seconds.end());
    const double predicted = cell.batch == 0
                                 ? model.prompt_seconds(cell.context, 0, speed_.step_tokens)
                                 : model.seconds({cell.batch, 1, cell.context + kMostTokens / 2.0});
    return {cell.name(), predicted, result.median(), result.spread()};
  }

  const Plan& plan_;
  const models::Model& model_;
  const VerifyOptions& options_;
  const std::function<void(const std::string&)>& progress_;
  SpeedOptions speed_;
  std::vector<ContextTrack> tracks_;
};

}  // namespace

Result<std::vector<VerifiedCell>> verify_plan(const Plan& plan, const models::Model& model,
                                              const VerifyOptions& options,
                                              const std::function<void(const std::string&)>& progress) {
  Verification verification(plan, model, options, progress);
  if (Status status = verification.open(); !status) return status.error();
  for (int round = 0; round < options.repeat; ++round) verification.run_round(round);
  return verification.cells();
}

std::string verify_text(const std::vector<VerifiedCell>& cells) {
  std::string out = "| cell | predicted | measured | spread | error |\n|---|---:|---:|---:|---:|\n";
  for (const VerifiedCell& cell : cells)
    out += fmt::format("| {} | {} | {} | {:.0f} % | {:+.1f} % |\n", cell.name, time_text(cell.predicted),
                       time_text(cell.measured), cell.spread * 100, cell.error() * 100);
  if (cells.empty()) return out;
  const auto worst = std::max_element(
      cells.begin(), cells.end(),
      [](const VerifiedCell& a, const VerifiedCell& b) { return std::abs(a.error()) < std::abs(b.error()); });
  return out + fmt::format("worst: {}, {:+.1f} %\n", worst->name, worst->error() * 100);
}

}  // namespace sluice::lab

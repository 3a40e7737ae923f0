#include "lab/plan/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "base/system/memory.h"
#include "lab/measure/track.h"
#include "lab/plan/plan_units.h"
#include "lab/plan/step_probe.h"
#include "lab/speed.h"

namespace sluice::lab {

namespace {

constexpr int kMostTokens = 8;        // of a measured answer
constexpr double kEnoughSeconds = 2;  // of an answer; few tokens are enough where each takes long
constexpr double kBesideSeconds = 1;  // of prompts between samples beside them
// A cell that takes less is measured several times in a round, at most so often.
constexpr double kShortSeconds = 0.4;
constexpr size_t kMostShort = 5;
constexpr double kNear = 0.15;     // an error that predictions should keep within
constexpr int64_t kRoomParts = 4;  // of the memory that there is, all but one may become KV

struct MeasuredCell {
  enum class Phase : uint8_t { Prefill, Decode };
  Phase phase = Phase::Prefill;
  int context = 0, batch = 0;
  std::vector<double> seconds = {};    // of the prompts or of a token, one for each round
  std::vector<double> predicted = {};  // by what was measured beside each; empty: nothing was

  std::string name() const {
    return fmt::format("{} x{} at {}", phase == Phase::Prefill ? "prefill" : "decode", batch, context);
  }
};

// The cells of one context, prompts first.
struct ContextCells {
  int context = 0;
  int sequences = 1;
  std::vector<MeasuredCell> cells;
  std::vector<VerifiedCell> left_out;
  std::unique_ptr<Track> track = nullptr;
};

class Verification {
 public:
  Verification(const Plan& plan, const models::Model& model, const VerifyOptions& options,
               const std::function<void(const std::string&)>& progress)
      : plan_(plan), model_(model), options_(options), progress_(progress) {
    speed_.step_tokens = plan_step_tokens(plan.options, plan.model);
    speed_.kv_type = plan.model.sheet().kv_type;
  }

  Status open() {
    for (const int context : plan_.options.contexts) {
      const int positions = context + kMostTokens;
      if (positions > model_.spec().context)
        return Error{ErrorCode::InvalidArgument,
                     fmt::format("--context {} and {} more tokens are {} positions, the model has {}",
                                 context, kMostTokens, positions, model_.spec().context)};
      contexts_.push_back(cells_of(context));
      ContextCells& one = contexts_.back();
      if (one.cells.empty()) continue;
      Result<std::unique_ptr<Track>> track = Track::make(model_, speed_, one.sequences, positions);
      if (!track) return track.error();
      one.track = std::move(*track);
      one.track->fill_alike(context);
    }
    return {};
  }

  void run_round(int round) {
    for (ContextCells& one : contexts_) {
      for (MeasuredCell& cell : one.cells) {
        progress_(fmt::format("{}, round {} of {}", cell.name(), round + 1, options_.repeat));
        measure(*one.track, cell);
      }
    }
  }

  std::vector<VerifiedCell> cells() const {
    std::vector<VerifiedCell> prompts, answers, left_out;
    for (const ContextCells& one : contexts_) {
      for (const MeasuredCell& cell : one.cells)
        (cell.phase == MeasuredCell::Phase::Prefill ? prompts : answers).push_back(verified(cell));
      left_out.insert(left_out.end(), one.left_out.begin(), one.left_out.end());
    }
    prompts.insert(prompts.end(), answers.begin(), answers.end());
    prompts.insert(prompts.end(), left_out.begin(), left_out.end());
    return prompts;
  }

 private:
  using Phase = MeasuredCell::Phase;

  // What does not fit into memory beside the model is named, not measured.
  ContextCells cells_of(int context) const {
    const int64_t each = models::kv_bytes_per_token(model_.spec(), speed_.kv_type) * (context + kMostTokens);
    const int64_t room = memory_room().bytes / kRoomParts * (kRoomParts - 1);
    ContextCells out{.context = context, .cells = {}, .left_out = {}};
    for (const Phase phase : {Phase::Prefill, Phase::Decode}) {
      for (const int batch : plan_.options.batches) {
        const MeasuredCell cell{phase, context, batch};
        if (phase == Phase::Prefill && int64_t{batch} * context > options_.prompt_tokens) continue;
        if (batch * each > room) {
          out.left_out.push_back({.name = cell.name(),
                                  .left_out = fmt::format("its KV takes {}, there is room for {}",
                                                          memory_text(batch * each), memory_text(room))});
          continue;
        }
        out.cells.push_back(cell);
        out.sequences = std::max(out.sequences, batch);
      }
    }
    return out;
  }

  void measure(Track& track, MeasuredCell& cell) const {
    std::optional<CalibrationWindow> window;
    if (options_.calibration != nullptr)
      window.emplace(*options_.calibration, plan_.model.machine(), [&](const Machine& machine) {
        return predicted(cell, CostModel(plan_.model.sheet(), machine));
      });
    const auto beside = [&] {
      if (window) window->sample();
    };
    std::vector<double> seconds;
    double sum = 0;
    do {
      seconds.push_back(cell.phase == Phase::Prefill ? prompt_seconds(track, cell, beside)
                                                     : token_seconds(track, cell));
      sum += seconds.back() * (cell.phase == Phase::Prefill ? 1 : kMostTokens);
      beside();
    } while (sum < kShortSeconds && seconds.size() < kMostShort);
    cell.seconds.push_back(mean_of(seconds));
    if (window) cell.predicted.push_back(window->predicted());
  }

  // `beside` is called now and then between its steps, which it is no part of.
  double prompt_seconds(Track& track, const MeasuredCell& cell, const std::function<void()>& beside) const {
    double seconds = 0, last = 0;
    Stopwatch watch(options_.time);
    track.read_prompts(cell.batch, cell.context, [&] {
      seconds += watch.seconds();
      if (seconds - last > kBesideSeconds) {
        beside();
        last = seconds;
      }
      watch = Stopwatch(options_.time);
    });
    return seconds;
  }

  // The first token goes unmeasured and says how many follow.
  double token_seconds(Track& track, const MeasuredCell& cell) const {
    const Stopwatch first(options_.time);
    track.write_token(cell.batch, cell.context);
    const int tokens = std::clamp(static_cast<int>(kEnoughSeconds / first.seconds()), 1, kMostTokens - 1);
    const Stopwatch watch(options_.time);
    for (int i = 1; i <= tokens; ++i) track.write_token(cell.batch, cell.context + i);
    return watch.seconds() / tokens;
  }

  double predicted(const MeasuredCell& cell, const CostModel& model) const {
    return cell.phase == Phase::Prefill
               ? model.prompts_seconds(cell.batch, cell.context, 0, speed_.step_tokens)
               : model.seconds({cell.batch, 1, cell.context + kMostTokens / 2.0});
  }

  VerifiedCell verified(const MeasuredCell& cell) const {
    SpeedResult result, shares;
    result.seconds = cell.seconds;
    std::sort(result.seconds.begin(), result.seconds.end());
    for (size_t i = 0; i < cell.predicted.size(); ++i)
      shares.seconds.push_back(cell.predicted[i] / cell.seconds[i]);
    std::sort(shares.seconds.begin(), shares.seconds.end());
    const double measured = result.median();
    return {.name = cell.name(),
            .predicted = cell.predicted.empty() ? predicted(cell, plan_.model) : measured * shares.median(),
            .measured = measured,
            .spread = result.spread(),
            .samples = cell.seconds,
            .predictions = cell.predicted};
  }

  const Plan& plan_;
  const models::Model& model_;
  const VerifyOptions& options_;
  const std::function<void(const std::string&)>& progress_;
  SpeedOptions speed_;
  std::vector<ContextCells> contexts_;
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
  std::string out = "| cell | predicted | measured | spread | error |\n|---|---:|---:|---:|---:|\n", missing;
  const VerifiedCell* worst = nullptr;
  int measured = 0, near = 0;
  for (const VerifiedCell& cell : cells) {
    if (!cell.left_out.empty()) {
      missing += fmt::format("not measured: {}: {}\n", cell.name, cell.left_out);
      continue;
    }
    out += fmt::format("| {} | {} | {} | {:.0f} % | {:+.1f} % |\n", cell.name, time_text(cell.predicted),
                       time_text(cell.measured), cell.spread * 100, cell.error() * 100);
    if (worst == nullptr || std::abs(cell.error()) > std::abs(worst->error())) worst = &cell;
    ++measured;
    if (std::abs(cell.error()) <= kNear) ++near;
  }
  if (worst != nullptr)
    out += fmt::format("worst: {}, {:+.1f} %; {} of {} within {:.0f} %\n", worst->name, worst->error() * 100,
                       near, measured, kNear * 100);
  return out + missing;
}

json::object verify_json(const std::vector<VerifiedCell>& cells, const Machine& machine) {
  json::array list;
  for (const VerifiedCell& cell : cells) {
    json::object one{{"cell", cell.name}};
    if (!cell.left_out.empty()) {
      one["left_out"] = cell.left_out;
    } else {
      one["predicted_s"] = cell.predicted;
      one["measured_s"] = cell.measured;
      one["error"] = cell.error();
      one["samples_s"] = json::array(cell.samples.begin(), cell.samples.end());
      if (!cell.predictions.empty())
        one["predictions_s"] = json::array(cell.predictions.begin(), cell.predictions.end());
    }
    list.push_back(std::move(one));
  }
  return {{"cells", std::move(list)}, {"machine", to_json(machine)}};
}

}  // namespace sluice::lab

#include "lab/plan/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/system/memory.h"
#include "lab/plan/plan_units.h"
#include "lab/speed.h"

namespace sluice::lab {

namespace {

constexpr int kVerifyAnswer = 8;  // tokens of a measured answer

class Verification {
 public:
  Verification(const Plan& plan, const models::Model& model, const VerifyOptions& options,
               const std::function<void(const VerifiedCell&)>& done)
      : plan_(plan), model_(model), done_(done) {
    speed_.repeat = options.repeat;
    speed_.time = options.time;
    speed_.step_tokens = plan_step_tokens(plan.options, plan.model.machine());
    speed_.kv_type = plan.model.sheet().kv_type;
  }

  Status prefill(int context) {
    SpeedOptions options = speed_;
    options.prompts = {context};
    options.answers = options.batches = {};
    options.depths = {0};
    return run(options, [&](const SpeedResult&) {
      return std::pair(fmt::format("prefill {}", context),
                       plan_.model.prompt_seconds(context, 0, options.step_tokens));
    });
  }

  Status decode(int context) {
    SpeedOptions options = speed_;
    options.prompts = {};
    options.answers = {kVerifyAnswer};
    options.depths = {context};
    options.batches = {};
    const int64_t each =
        models::kv_bytes_per_token(model_.spec(), options.kv_type) * (context + kVerifyAnswer);
    for (const int batch : plan_.options.batches)
      if (batch * each < memory_room().bytes / 2) options.batches.push_back(batch);
    if (options.batches.empty()) return {};
    return run(options, [&](const SpeedResult& result) {
      const double middle = context + (kVerifyAnswer - 1) / 2.0;
      return std::pair(fmt::format("decode x{} at {}", result.test.batch, context),
                       plan_.model.seconds({result.test.batch, 1, middle}));
    });
  }

  std::vector<VerifiedCell> cells;

 private:
  template <class Predict>
  Status run(const SpeedOptions& options, Predict predict) {
    const auto results = measure_speed(model_, options, std::nullopt, [&](const SpeedResult& result) {
      const auto [name, seconds] = predict(result);
      const int steps = result.test.kind == SpeedTest::Kind::Answer ? result.test.tokens : 1;
      cells.push_back({name, seconds, result.median() / steps, result.spread()});
      done_(cells.back());
    });
    return results ? Status() : Status(results.error());
  }

  const Plan& plan_;
  const models::Model& model_;
  const std::function<void(const VerifiedCell&)>& done_;
  SpeedOptions speed_;
};

}  // namespace

Result<std::vector<VerifiedCell>> verify_plan(const Plan& plan, const models::Model& model,
                                              const VerifyOptions& options,
                                              const std::function<void(const VerifiedCell&)>& done) {
  Verification verification(plan, model, options, done);
  for (const int context : plan.options.contexts)
    if (context <= options.prompt_tokens)
      if (Status status = verification.prefill(context); !status) return status.error();
  for (const int context : plan.options.contexts)
    if (Status status = verification.decode(context); !status) return status.error();
  return std::move(verification.cells);
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

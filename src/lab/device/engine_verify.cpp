#include "lab/device/engine_verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "lab/speed.h"

namespace sluice::lab {

namespace {

class EngineVerification {
 public:
  EngineVerification(const Plan& plan, EngineRun& run, int repeat,
                     const std::function<void(const std::string&)>& progress)
      : plan_(plan), run_(run), repeat_(repeat), progress_(progress) {}

  Status measure(int batch, int context) {
    const std::string where = fmt::format("x{} at {}", batch, context);
    const int steps = run_.prompt_steps(batch, context);
    const int64_t positions = int64_t{batch} * (context + EngineRunOptions::kTokens + steps);
    if (positions > run_.kv_tokens()) {
      for (const char* phase : {"prefill ", "decode "})
        left_out_.push_back(
            {.name = phase + where,
             .left_out = fmt::format("{} positions, there is room for {}", positions, run_.kv_tokens())});
      return {};
    }
    const CostModel& model = plan_.model;
    // A sequence that began earlier is as many tokens further.
    const double depth = context + EngineRunOptions::kTokens / 2.0 + (steps - 2) / 2.0;
    VerifiedCell prompt{.name = "prefill " + where,
                        .predicted = model.prompts_seconds(batch, context, 0, run_.step_tokens())};
    VerifiedCell token{.name = "decode " + where, .predicted = model.seconds({batch, 1, depth})};
    for (int round = 0; round < repeat_; ++round) {
      progress_(fmt::format("{}, round {} of {}", where, round + 1, repeat_));
      const Result<double> first = run_.prompt_seconds(batch, context);
      if (!first) return first.error();
      const Result<double> next = run_.token_seconds(batch, context);
      if (!next) return next.error();
      prompt.samples.push_back(*first);
      token.samples.push_back(*next);
    }
    settle(prompt);
    settle(token);
    prompts_.push_back(std::move(prompt));
    tokens_.push_back(std::move(token));
    return {};
  }

  std::vector<VerifiedCell> cells() && {
    std::vector<VerifiedCell> out = std::move(prompts_);
    for (std::vector<VerifiedCell>* more : {&tokens_, &left_out_})
      out.insert(out.end(), std::make_move_iterator(more->begin()), std::make_move_iterator(more->end()));
    return out;
  }

 private:
  static void settle(VerifiedCell& cell) {
    SpeedResult result;
    result.seconds = cell.samples;
    std::sort(result.seconds.begin(), result.seconds.end());
    cell.measured = result.median();
    cell.spread = result.spread();
  }

  const Plan& plan_;
  EngineRun& run_;
  int repeat_;
  const std::function<void(const std::string&)>& progress_;
  std::vector<VerifiedCell> prompts_, tokens_, left_out_;
};

}  // namespace

Result<std::vector<VerifiedCell>> verify_engine(const Plan& plan, EngineRun& run, int repeat,
                                                const std::function<void(const std::string&)>& progress) {
  progress("a first run");
  if (const Result<double> first = run.token_seconds(1, plan.options.contexts.front()); !first)
    return first.error();
  EngineVerification verification(plan, run, repeat, progress);
  for (const int context : plan.options.contexts)
    for (const int batch : plan.options.batches)
      if (Status status = verification.measure(batch, context); !status) return status.error();
  return std::move(verification).cells();
}

}  // namespace sluice::lab

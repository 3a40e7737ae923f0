#include "lab/device/engine_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/clock.h"

namespace sluice::lab {

// Of one run, in seconds since its first step.
struct EngineRun::Times {
  std::vector<double> last;  // of the tokens of the sequence that came last
  int finished = 0;
  std::string error;
};

namespace {

// Positions of a sequence beside its prompt: tokens that are timed, those before, and what fills up its last blocks.
int room_beside(int steps, int block_size) {
  return EngineRunOptions::kTokens + steps + 2 * block_size;
}

int steps_of(int sequences, int tokens, int step_tokens) {
  return static_cast<int>((int64_t{sequences} * tokens + step_tokens - 1) / step_tokens) + 2;
}

llm::EngineFlags with_room(const EngineRunOptions& options, const models::Model& model) {
  const bool gpu = model.backend->async_device() != nullptr;
  llm::EngineFlags flags = options.flags;
  flags.prefix_cache = false;
  flags.target_tbt = 0;  // prompts are read as fast as they can be
  if (flags.block_size == 0) flags.block_size = gpu ? 64 : 16;
  if (flags.max_step_tokens == 0)
    flags.max_step_tokens = llm::default_step_tokens(gpu, models::active_parameter_count(model.spec()));
  if (flags.max_seqs == 0) flags.max_seqs = options.sequences;
  const int longest =
      options.context +
      room_beside(steps_of(options.sequences, options.context, flags.max_step_tokens), flags.block_size);
  if (flags.context == 0) flags.context = longest;
  if (flags.kv_tokens == 0) flags.kv_tokens = options.sequences * longest;
  return flags;
}

}  // namespace

Result<std::unique_ptr<EngineRun>> EngineRun::make(const models::Model& model,
                                                   const EngineRunOptions& options) {
  const llm::EngineFlags wanted = with_room(options, model);
  Result<llm::EngineFlags> flags = llm::resolve_defaults(wanted, model);
  if (!flags) return flags.error();
  Result<llm::EngineSetup> setup = llm::make_setup(*flags, model.spec(), model.files.path, {});
  if (!setup) return setup.error();
  auto out = std::unique_ptr<EngineRun>(new EngineRun(model));
  out->setup_ = std::move(*setup);
  Result<std::unique_ptr<runtime::ModelExecutor>> executor =
      runtime::ModelExecutor::make(model, nullptr, out->setup_.executor);
  if (!executor) return executor.error();
  out->executor_ = std::move(*executor);
  engine::EngineOptions engine{
      .scheduler = out->setup_.scheduler,
      .kv_manager = out->setup_.kv_manager,
      .queue = {.requests = size_t{1} << 20, .tokens = size_t{1} << 30, .bytes = size_t{1} << 40},
      .vocab = model.spec().vocab};
  out->engine_ = std::make_unique<engine::Engine>(std::move(engine), *out->executor_);
  return out;
}

int EngineRun::prompt_steps(int sequences, int tokens) const {
  return steps_of(sequences, tokens, step_tokens());
}

// All come before the first step, so that none runs without the others.
Result<EngineRun::Times> EngineRun::run(int sequences, int tokens, int answer) {
  Times times;
  std::mt19937 random(seed_++);
  TimePoint start{};
  for (int i = 0; i < sequences; ++i) {
    engine::Submission submission;
    for (int token = 0; token < tokens; ++token)
      submission.request.prompt.push_back(
          static_cast<Token>(random() % static_cast<unsigned>(model_.spec().vocab)));
    submission.request.sampling().max_tokens = answer;
    submission.request.sampling().ignore_eos = true;
    submission.request.sampling().method = request::Sampling{.temperature = 0};
    const bool is_last = i + 1 == sequences;
    submission.deliver = [&times, &start, is_last](const engine::Event& event) {
      if (is_last && std::holds_alternative<engine::Delta>(event)) times.last.push_back(seconds_since(start));
      const auto* end = std::get_if<engine::Finished>(&event);
      if (end == nullptr) return;
      ++times.finished;
      if (end->error) times.error = end->error->message;
    };
    if (const auto id = engine_->submit(std::move(submission)); !id) return id.error();
  }
  start = Clock::now();
  while (times.finished < sequences && !engine_->health().failed) engine_->step();
  if (times.error.empty() && times.last.size() == static_cast<size_t>(answer)) return times;
  return Error{ErrorCode::Unavailable,
               fmt::format("{} sequences of {} tokens: {}", sequences, tokens,
                           times.error.empty() ? "an answer came in pieces" : times.error)};
}

Result<double> EngineRun::prompt_seconds(int sequences, int tokens) {
  const Result<Times> times = run(sequences, tokens, 1);
  if (!times) return times.error();
  return times->last.front();
}

Result<double> EngineRun::token_seconds(int sequences, int tokens) {
  constexpr int kTokens = EngineRunOptions::kTokens;
  const Result<Times> times = run(sequences, tokens, kTokens + prompt_steps(sequences, tokens));
  if (!times) return times.error();
  return (times->last[kTokens] - times->last[1]) / (kTokens - 1);
}

}  // namespace sluice::lab

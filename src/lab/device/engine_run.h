// Sequences alike through scheduler, KV manager and executor, as a server has them: what predictions for a device are
// compared with.
#pragma once

#include <memory>

#include "engine/engine.h"
#include "llm/engine_flags.h"
#include "models/model.h"
#include "runtime/model_executor.h"

namespace sluice::lab {

struct EngineRunOptions {
  llm::EngineFlags flags;  // kv-tokens, ctx-size and max-seqs are those of the largest run where they are 0
  int sequences = 1;       // of the largest run
  int context = 0;         // of the longest prompt
  static constexpr int kTokens = 32;  // that are timed when all sequences have begun
};

class EngineRun {
 public:
  // The model outlives it. Warms the device up as a server does.
  static Result<std::unique_ptr<EngineRun>> make(const models::Model& model, const EngineRunOptions& options);

  // Seconds until the prompts of all sequences have been read and their first tokens are there.
  Result<double> prompt_seconds(int sequences, int tokens);
  // Seconds between tokens of all sequences behind prompts of so many tokens.
  Result<double> token_seconds(int sequences, int tokens);

  // Steps that the prompts of a run take at most: the first sequence has as many tokens more than the last one.
  int prompt_steps(int sequences, int tokens) const;
  int step_tokens() const { return setup_.scheduler.max_step_tokens; }
  int kv_tokens() const { return setup_.kv_tokens; }

 private:
  struct Times;

  explicit EngineRun(const models::Model& model) : model_(model) {}
  Result<Times> run(int sequences, int tokens, int answer);

  const models::Model& model_;
  llm::EngineSetup setup_;
  std::unique_ptr<runtime::ModelExecutor> executor_;
  std::unique_ptr<engine::Engine> engine_;
  uint32_t seed_ = 1;
};

}  // namespace sluice::lab

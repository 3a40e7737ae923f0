// Runs the engine's steps on a model.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "grammar/grammar_store.h"
#include "runtime/step_pipeline.h"
#include "runtime/warm_up.h"
#include "sched/executor.h"

namespace sluice::runtime {

struct ExecutorOptions {
  KvMemoryOptions memory;  // blocks as the KV manager's groups have them on the device tier
  TierOptions tiers;
  std::vector<Token> eos_tokens;  // end a sequence unless its request ignores them
  bool padding = false;           // steps may ask for padded rows
  // Of the requests' constraints; null: they fail.
  std::shared_ptr<grammar::GrammarStore> grammars = nullptr;
  SpeculationOptions speculation;
  // Guesses for the model: one of the two, with the same tokens. Outlives the executor.
  const models::Model* draft = nullptr;
  const models::Head* head = nullptr;
  size_t picture_bytes = size_t{256} << 20;  // most bytes of kept embeddings of pictures
  // Steps of up to this size are run before the first request comes, where the device works beside the host; 0: none.
  StepSize warm_up;
};

// The model, and the amateur of contrastive decoding where there is one (same vocabulary), outlive the executor.
class ModelExecutor : public sched::Executor {
 public:
  static Result<std::unique_ptr<ModelExecutor>> make(const models::Model& model, const models::Model* amateur,
                                                     const ExecutorOptions& options);

  int depth() const override { return pipeline_->depth(); }
  // For sched::SchedulerOptions.
  int stages() const { return pipeline_->stages(); }
  int even_step_tokens() const;
  void submit(const request::Step& step) override;
  Result<std::vector<request::Outcome>> collect() override;
  Status reset() override;
  Status alive() const override;
  double launch_seconds() const override { return pipeline_->launch_seconds(); }
  sched::PictureCounts picture_counts() const override { return pipeline_->picture_counts(); }
  bool parts_towers() const override { return pipeline_->parts_towers(); }
  double tower_seconds() const override { return pipeline_->tower_seconds(); }
  // Empty with a draft model, a head or an amateur, whose KV would be missing, with states, with rotary frequencies that
  // change with the length, and with ranks.
  std::vector<int64_t> block_bytes() const override;
  bool read_block(int group, request::Place place, std::span<std::byte> out) override;
  void write_blocks(std::span<const request::BlockMove> moves,
                    std::span<const sched::BlockWrite> writes) override;

 private:
  struct Submitted : SubmittedStep {
    std::optional<Error> failure;
  };

  explicit ModelExecutor(const models::Model& model) : model_(model) {}

  Status set_up(const models::Model* amateur, const ExecutorOptions& options);
  // Looks, now and then, whether the files that weights lie in were written to: what is computed from then on is worth
  // nothing.
  Status check_files();

  const models::Model& model_;
  bool padding_ = false;
  bool alone_ = false;                // no other model keeps KV in the same blocks
  const KvMemory* memory_ = nullptr;  // of the model
  std::optional<StepPipeline> pipeline_;
  std::deque<Submitted> submitted_;
  std::optional<std::string> step_failure_;  // which ranks of a group have run how much of it is not known
  TimePoint files_checked_{};
  Status files_;  // of the last check
};

}  // namespace sluice::runtime

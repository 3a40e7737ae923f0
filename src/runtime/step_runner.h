// Runs steps on one model: the moves of its KV blocks, the batch of its work and the forward pass.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "request/step.h"
#include "runtime/model_runner.h"

namespace sluice::runtime {

class StepRunner {
 public:
  // `spare`: blocks of each group beyond those of the KV manager, for padding and for rows that nobody wants.
  static Result<std::unique_ptr<StepRunner>> make(const models::Model& model, KvMemoryOptions memory,
                                                  const TierOptions& tiers, bool spare);

  ModelRunner& runner() { return *runner_; }
  const models::ModelSpec& spec() const { return runner_->model().spec(); }
  Batch& batch() { return batch_; }
  std::span<const BlockId> spare_blocks() const { return spare_; }  // the first of each group

  // Starts a step with an empty batch.
  void start() { batch_.clear(); }
  // Whether the work would read KV that could not be read back.
  bool reads_lost_block(const request::Step& step, size_t index);
  // Adds `work`, which is that of the step with this index, its drafts filled in. Its sequence has these tokens; where the
  // last one is not among them, it is in `slot` of the device. Returns the row of its first position.
  int add(const request::Step& step, size_t index, const request::Work& work, std::span<const Token> tokens,
          int slot);
  // Rows that nobody wants, each a sequence of one token.
  void add_idle_row();
  // Up to so many sequences and rows: idle sequences of one row each, then one of all rows that are left. REQUIRES: there is
  // room for one sequence and one row at least.
  void fill_up(int sequences, int rows);
  // Padding is computed like any other token. What is beyond one pass runs at once, the rest with the batch.
  void pad(int64_t tokens);

 private:
  StepRunner(std::unique_ptr<ModelRunner> runner, std::span<const int> blocks);
  bool starts_from_lost_state(const request::Step& step, size_t index, int group);
  void add_padding(Batch& batch, int64_t tokens) const;

  std::unique_ptr<ModelRunner> runner_;
  Batch batch_;
  std::vector<BlockId> spare_;
  std::vector<Token> run_;                        // tokens of one work
  std::vector<std::span<const BlockId>> tables_;  // of one work
};

}  // namespace sluice::runtime

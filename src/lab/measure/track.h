// A model with sequences of its own, run as the executor runs them, on random tokens: what measurements of speed drive.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/result.h"
#include "lab/speed.h"
#include "models/model.h"
#include "runtime/model_runner.h"
#include "runtime/overlapped_step_runner.h"

namespace sluice::lab {

// Sequence s has the s-th run of blocks in every group, and the s-th slot of states. On a device that works beside the host
// tokens are sampled there and decode steps are replayed.
class Track {
 public:
  // With KV memory for so many sequences of so many positions. The model outlives it.
  static Result<std::unique_ptr<Track>> make(const models::Model& model, const SpeedOptions& options,
                                             int sequences, int positions);

  // Runs `tokens` positions of sequence 0 behind the first `begin`, in steps, with logits for the last one.
  void read_prompt(int begin, int tokens);
  // Prompts of so many tokens of the first `sequences`, in steps that are filled up, with logits for the last of each.
  // `between` is called after each of them.
  void read_prompts(int sequences, int tokens, const std::function<void()>& between = {});
  // Gives all sequences the first `depth` positions of sequence 0.
  void spread(int depth);
  // Both: every sequence has `depth` positions of content.
  void fill(int depth) {
    read_prompt(0, depth);
    spread(depth);
  }
  // The same with content that comes again and again, which costs no more than a short prompt.
  void fill_alike(int depth);
  // One token for each of the first `batch_size` sequences at this position.
  void write_token(int batch_size, int position);
  // One step: `queries` tokens of each of the first `sequences` behind their first `depth` positions. Logits of the last
  // of each; none: of no row. A device may still be at it until wait().
  void submit_step(int sequences, int queries, int depth, bool logits);
  void wait();

 private:
  Track(const models::Model& model, const SpeedOptions& options, int blocks)
      : model_(model), options_(options), blocks_(blocks), state_(options.seed) {}

  void add(runtime::Batch& batch, int sequence, int begin, int count);
  // `replays`: steps of this shape come again.
  void submit(runtime::Batch& batch, std::span<const int32_t> rows, bool replays);
  Token next_token();

  const models::Model& model_;
  SpeedOptions options_;
  int blocks_;  // of one sequence
  uint64_t state_;
  std::unique_ptr<runtime::ModelRunner> runner_;
  std::optional<runtime::OverlappedStepRunner> ahead_;
  runtime::ModelRunner::Rows rows_;
  int groups_ = 0, sequences_ = 0;
};

}  // namespace sluice::lab

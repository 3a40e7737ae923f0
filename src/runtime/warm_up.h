// Steps that are run before any request comes: they take the memory of the largest step for good, find the fastest ways
// to compute each size and record the steps that will come back.
#pragma once

#include <span>
#include <vector>

#include "runtime/overlapped_step_runner.h"

namespace sluice::runtime {

struct StepSize {
  int tokens = 0;     // of one step
  int sequences = 0;  // of one step
  int rows = 0;       // that are sampled from in one step, where drafts make them more than the sequences
  int each = 1;       // of those, of one sequence
};

// What the steps run on. `blocks` names one block of each group that may be overwritten: it stands for all positions.
struct WarmUp {
  OverlappedStepRunner& ahead;
  ModelRunner& runner;
  std::vector<BlockId> blocks;
  bool drafts = false;  // its steps find drafts, else they verify them
};

// The largest step, once.
void run_largest_step(const WarmUp& warm, StepSize size);
// Every size that comes back, of each of them; tuning is off afterwards. REQUIRES: at least one
void run_common_steps(std::span<const WarmUp> all, StepSize size);

// Bytes left for KV when everything else has its memory: the largest step is run with next to none. `share` of the
// device's memory may be used in all, by all ranks of a group that are on it, of which each gets an equal part of what is
// left. An error names the sizes where nothing is left.
Result<int64_t> room_for_kv(const models::Model& model, const KvMemoryOptions& kv, StepSize size,
                            double share);

}  // namespace sluice::runtime

// What runs steps: a device, a fake that invents tokens, or a cost model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "request/step.h"

namespace sluice::sched {

// Vision towers so far.
struct PictureCounts {
  uint64_t encoded = 0;  // tiles that a tower has run over
  uint64_t passes = 0;   // over one or several of them
  uint64_t reused = 0;   // tiles whose embeddings were still there
};

// The bytes of a device block that was computed elsewhere, of all layers of its group.
struct BlockWrite {
  int group = 0;
  BlockId block;
  std::span<const std::byte> bytes;
};

class Executor {
 public:
  virtual ~Executor() = default;

  // Steps that may be submitted before the first of them is collected.
  virtual int depth() const { return 1; }

  // Starts a step. Steps run in the order of submission.
  virtual void submit(const request::Step& step) = 0;

  // Waits for the oldest submitted step. One outcome for each sequence or group that sampled, failed or has
  // prompt log-probabilities to report, in any order; none for work that only fills the cache. An error means
  // that the whole step failed: every request known to the executor is lost.
  virtual Result<std::vector<request::Outcome>> collect() = 0;

  // After a failed step: forgets all sequences, submitted steps and KV content. An error means that the
  // device is gone for good.
  virtual Status reset() = 0;

  // Thread-safe. An error: the device, or a rank of it, is known to be gone though no step has failed yet.
  virtual Status alive() const { return {}; }

  // Seconds of the last submit() before the device had something to do; 0 where the host is the device.
  virtual double launch_seconds() const { return 0; }

  virtual PictureCounts picture_counts() const { return {}; }
  // Whether it keeps to Step::pictures, by running towers in parts and postponing work.
  virtual bool parts_towers() const { return false; }
  // That towers took of the last step; 0 where they are not run in parts.
  virtual double tower_seconds() const { return 0; }

  // Handing KV blocks to and from other processes, between steps. Bytes of a block of each group, over all its layers;
  // empty: this executor hands none over.
  virtual std::vector<int64_t> block_bytes() const { return {}; }
  // As the submitted steps leave it. False: its content was lost. REQUIRES: block_bytes() of the group in `out`, which is
  // not empty.
  virtual bool read_block(int /*group*/, request::Place /*place*/, std::span<std::byte> /*out*/) {
    return false;
  }
  // After all that was submitted: first the moves, then the writes.
  virtual void write_blocks(std::span<const request::BlockMove> /*moves*/,
                            std::span<const BlockWrite> /*writes*/) {}
};

}  // namespace sluice::sched

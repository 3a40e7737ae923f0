// Steps whose tokens an asynchronous device samples by itself: the host submits the next one before it has seen them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/async_device.h"
#include "request/step.h"
#include "runtime/model_runner.h"
#include "sampling/token_sampler.h"

namespace sluice::runtime {

// Rows of a decode step are filled up to one of these, so that few different steps come back often.
int padded_rows(int rows);

class OverlappedStepRunner {
 public:
  explicit OverlappedStepRunner(kernels::AsyncDevice& device);

  // Where a sequence's tokens are sampled; nullopt where all slots are taken. Slot 0 is for rows that nobody wants.
  std::optional<int> take_slot();
  void free_slot(int slot) { free_.push_back(slot); }

  // A step in the making: which row of the batch each token is sampled from.
  struct SampleBatch {
    std::vector<int32_t> rows;
    std::vector<kernels::SampleArgs> how;
    std::vector<kernels::LogitAdjustment> edits;
    void add(int row, kernels::SampleArgs sample, std::span<const kernels::LogitAdjustment> changes = {}) {
      sample.first_edit = static_cast<int32_t>(edits.size());
      sample.edits = static_cast<int32_t>(changes.size());
      rows.push_back(row);
      how.push_back(sample);
      edits.insert(edits.end(), changes.begin(), changes.end());
    }
  };
  // Runs the batch and samples; `repeats`: a step of this shape comes again. The ticket is for wait().
  int64_t run(ModelRunner& runner, Batch& batch, const SampleBatch& to_sample, bool repeats);
  // The same after the batch has run.
  int64_t sample(ModelRunner& runner, const SampleBatch& to_sample);
  std::span<const kernels::SampledToken> wait(int64_t ticket) { return device_.wait_sampled(ticket); }

  kernels::AsyncDevice& device() { return device_; }

 private:
  void sample_rows(ModelRunner& runner, const SampleBatch& to_sample);

  kernels::AsyncDevice& device_;
  std::vector<int> free_;
  int next_ = 1;
};

// How the device would sample a sampler's token `ahead` tokens after the last that the sampler has seen, edits aside;
// nullopt where only the sampler itself can.
std::optional<kernels::SampleArgs> sample_args(const sampling::TokenSampler& sampler, int ahead, int slot);
// What the device drew at this position of the output, as the sampler would have said it.
Result<request::Sampled> sampled_from(const kernels::SampledToken& from_device, size_t position);

}  // namespace sluice::runtime

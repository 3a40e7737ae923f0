// Steps whose tokens an asynchronous device samples by itself: the host submits the next one before it has seen them.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "kernels/async_device.h"
#include "request/step.h"
#include "runtime/model_runner.h"
#include "runtime/token_slots.h"
#include "sampling/token_sampler.h"

namespace sluice::runtime {

// Rows of a decode step are filled up to one of these, so that few different steps come back often.
int padded_rows(int rows);

// What steps that run several tokens of a sequence are filled up to. There is always an idle sequence of at least one row:
// neither the number of drafts nor whose they are makes another step.
struct PaddedShape {
  int sequences = 0, rows = 0;
  auto operator<=>(const PaddedShape&) const = default;
};
PaddedShape padded_shape(int sequences, int rows);
// Rows of such a step that comes back often enough to be recorded.
inline constexpr int kMostRecordedRows = 512;

class OverlappedStepRunner {
 public:
  explicit OverlappedStepRunner(kernels::AsyncDevice& device) : device_(device), slots_(device.slots()) {}

  // Where sequences' tokens are sampled.
  TokenSlots& slots() { return slots_; }

  // Rows of the batch whose logits are computed, in order, and how a token is sampled from each.
  struct SampleBatch {
    std::vector<int32_t> rows;
    std::vector<kernels::SampleArgs> how;
    std::vector<kernels::LogitAdjustment> edits;
    std::vector<uint32_t> masks;  // [.., kernels::mask_words(vocab)]
    int64_t vocab = 0;            // tokens from here on are never sampled; 0: any may be
    void add(int row, const kernels::SampleArgs& sample,
             std::span<const kernels::LogitAdjustment> changes = {}) {
      rows.push_back(row);
      how.emplace_back();
      set(how.size() - 1, sample, changes);
    }
    // Says how a row is sampled that was added before that was known.
    void set(size_t row, kernels::SampleArgs sample, std::span<const kernels::LogitAdjustment> changes) {
      sample.first_edit = static_cast<int32_t>(edits.size());
      sample.edits = static_cast<int32_t>(changes.size());
      how[row] = sample;
      edits.insert(edits.end(), changes.begin(), changes.end());
    }
    // Room for the mask of a row that was added.
    std::span<uint32_t> add_mask(size_t row, size_t words) {
      how[row].mask = static_cast<int32_t>(masks.size() / words);
      masks.resize(masks.size() + words);
      return std::span(masks).last(words);
    }
    void clear() {
      rows.clear();
      how.clear();
      edits.clear();
      masks.clear();
    }
  };
  // Runs the batch and samples; `kept` are the rows that may be asked for later, those to sample among them. Returns the
  // hidden states and logits of the sampled rows, valid until the runner is used again.
  ModelRunner::Outputs run(ModelRunner& runner, Batch& batch, const SampleBatch& to_sample,
                           std::span<const int32_t> kept);
  // The same for a step whose shape comes again.
  ModelRunner::Outputs replay(ModelRunner& runner, Batch& batch, const SampleBatch& to_sample);
  // The same without the sampling, which follows while the device runs the rest: its masks need not be there yet.
  // `replays`: the shape comes again.
  ModelRunner::Outputs forward(ModelRunner& runner, Batch& batch, const SampleBatch& to_sample,
                               std::span<const int32_t> kept, bool replays);
  void sample(const ModelRunner::Outputs& outputs, const SampleBatch& to_sample);
  // Sends what was sampled, after everything that was sent before. The ticket is for wait().
  int64_t send(const SampleBatch& to_sample) { return device_.send_sampled(to_sample.rows.size()); }
  std::span<const kernels::SampledToken> wait(int64_t ticket) { return device_.wait_sampled(ticket); }

  // A step is being submitted; when its first pass was, of whichever model.
  void start() { begun_.reset(); }
  void note_begun() {
    if (!begun_) begun_ = Clock::now();
  }
  std::optional<TimePoint> begun() const { return begun_; }

  kernels::AsyncDevice& device() { return device_; }

 private:
  kernels::AsyncDevice& device_;
  TokenSlots slots_;
  std::optional<TimePoint> begun_;
};

// Steps of which shapes have been run and recorded: the first two of a shape take longer.
class RecordedShapes {
 public:
  // Of a step that is run now.
  bool runs_fast(PaddedShape shape) { return ++runs_[shape] > 2; }

 private:
  std::map<PaddedShape, int64_t> runs_;
};

// How the device would sample a sampler's token `ahead` tokens after the last that the sampler has seen, edits aside;
// nullopt where only the sampler itself can.
std::optional<kernels::SampleArgs> sample_args(const sampling::TokenSampler& sampler, int ahead, int slot);
// What the device sampled at this position of the output, as the sampler would have said it.
Result<request::Sampled> sampled_from(const kernels::SampledToken& from_device, size_t position);

}  // namespace sluice::runtime

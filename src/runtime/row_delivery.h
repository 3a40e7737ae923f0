// Brings rows of a step to the host and to the sequences that asked for them: at once, or, where an asynchronous device
// sends them, when the step is collected.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/async_device.h"
#include "runtime/sequence_table.h"
#include "runtime/step_runner.h"

namespace sluice::runtime {

// A work of the step that is being submitted.
struct PlannedWork {
  const request::Work* work = nullptr;
  size_t index = 0;  // of the work in its step
  SequenceTable::Entry of;
  StepNeed need;
  int first_row = 0;     // row of position work->begin
  int contrast_row = 0;  // the same in the contrast model's batch, where that runs it
  int sampled = -1;      // which of the step's sampled rows is its first one

  int row(int position) const { return first_row + position - work->begin; }
  int last_row() const { return row(work->end - 1); }
  // Rows that are sampled from: the last one, and those before it that drafts follow.
  int sampled_rows() const { return need.last == StepNeed::Last::None ? 0 : 1 + need.drafts; }
  int host_rows() const { return need.last == StepNeed::Last::Host ? sampled_rows() : 0; }
};

// What a submitted step still owes its sequences.
struct AwaitedRows {
  struct Item {
    SeqId owner;
    int sampled = -1;                // first of the device's list
    int drafts = 0;                  // so many more of it
    size_t first_row = 0, rows = 0;  // of `last`
    PromptRows prompt;               // count 0: none
  };
  std::vector<Item> items;
  std::vector<HostRow> last;
  // Of ask().
  bool asked = false;
  ModelRunner::Wanted of_last;
};

class RowDelivery {
 public:
  // `contrast` and `device` may be null. All outlive it.
  RowDelivery(StepRunner& target, StepRunner* contrast, kernels::AsyncDevice* device)
      : target_(target), contrast_(contrast), device_(device) {}

  // After the forward passes: reads what the works ask of the host, and lets their sequences consume it.
  void deliver_now(std::span<const PlannedWork> plan, std::vector<request::Outcome>& outcomes);

  // Whether the works' rows can be sent. Log-probabilities of prompts are too many rows to be kept until later, and
  // attention to them is read from what the step leaves.
  bool can_send(std::span<const PlannedWork> plan) const;
  // Sends them; outputs are those of the step's sampled rows. Every work that samples or reads is noted in `awaited`.
  // At most kSteps sent steps may be outstanding.
  void send(std::span<const PlannedWork> plan, const ModelRunner::Outputs& outputs, AwaitedRows& awaited);
  // Once the device has sent everything: lets the sequences that still exist consume it.
  void deliver(const AwaitedRows& awaited, std::span<const kernels::SampledToken> sampled,
               const SequenceTable& sequences, std::vector<request::Outcome>& outcomes);
  static constexpr int kSteps = 2;
  static constexpr size_t kMostSent = (size_t{64} << 20) / sizeof(float);  // floats of one step

  // The same three where another rank has the last layers (parallel/rank_steps.cpp): whether the rows can be taken behind
  // other passes, asking for them, and taking them, for deliver() to use before the next call.
  bool can_ask(std::span<const PlannedWork> plan) const;
  void ask(std::span<const PlannedWork> plan, AwaitedRows& awaited);
  void take(AwaitedRows& awaited);

 private:
  struct Count {
    size_t last = 0, contrast = 0, hidden = 0;  // rows
    bool last_hidden = false;
  };
  Count count(std::span<const PlannedWork> plan) const;
  size_t floats(const Count& rows) const;
  float* staging(size_t count);
  void send_last(std::span<const PlannedWork> plan, TensorView rows, std::span<float> to);
  void send_contrast(std::span<const PlannedWork> plan, float* to);

  void read_last(std::span<const PlannedWork> portion);
  void read_prompt(const PlannedWork& item);
  void consume(SeqId owner, Sequence& sequence, const PromptRows& prompt, const StepRows& rows,
               std::vector<request::Outcome>& outcomes);

  struct Pinned {
    std::shared_ptr<std::byte> memory;
    size_t floats = 0;
  };
  StepRunner& target_;
  StepRunner* contrast_;
  kernels::AsyncDevice* device_;
  std::array<Pinned, kSteps> pinned_;
  uint64_t sent_ = 0;
  sampling::Workspace workspace_;
  ModelRunner::Rows prompt_rows_, last_rows_, contrast_rows_;
  std::vector<ModelRunner::Rows> prompts_;  // of take()
  std::vector<int32_t> rows_;
  std::vector<HostRow> host_rows_;
};

}  // namespace sluice::runtime

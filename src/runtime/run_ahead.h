// Steps whose tokens an accelerator draws by itself: the host submits the next one before it has seen them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/accelerator.h"
#include "request/step.h"
#include "runtime/model_runner.h"
#include "sampling/token_sampler.h"

namespace sluice::runtime {

// Rows of a decode step are filled up to one of these, so that few different steps come back often.
int padded_rows(int rows);

class RunAhead {
 public:
  explicit RunAhead(kernels::Accelerator& device);

  // Where a sequence's tokens are drawn; nullopt where all slots are taken. Slot 0 is for rows that nobody wants.
  std::optional<int> take_slot();
  void free_slot(int slot) { free_.push_back(slot); }

  // A step in the making: which row of the batch each token is drawn from.
  struct Draws {
    std::vector<int32_t> rows;
    std::vector<kernels::DrawRow> how;
    std::vector<kernels::TokenEdit> edits;
    void add(int row, kernels::DrawRow draw, std::span<const kernels::TokenEdit> changes = {}) {
      draw.first_edit = static_cast<int32_t>(edits.size());
      draw.edits = static_cast<int32_t>(changes.size());
      rows.push_back(row);
      how.push_back(draw);
      edits.insert(edits.end(), changes.begin(), changes.end());
    }
  };
  // Runs the batch and draws; `repeats`: a step of this shape comes again. The ticket is for wait().
  int64_t run(ModelRunner& runner, Batch& batch, const Draws& draws, bool repeats);
  // The same after the batch has run.
  int64_t draw(ModelRunner& runner, const Draws& draws);
  std::span<const kernels::DrawnToken> wait(int64_t ticket) { return device_.wait_drawn(ticket); }

  kernels::Accelerator& device() { return device_; }

 private:
  void draw_rows(ModelRunner& runner, const Draws& draws);

  kernels::Accelerator& device_;
  std::vector<int> free_;
  int next_ = 1;
};

// How the device would draw a sampler's token `ahead` tokens after the last that the sampler has seen, edits aside;
// nullopt where only the sampler itself can.
std::optional<kernels::DrawRow> draw_row(const sampling::TokenSampler& sampler, int ahead, int slot);
// What the device drew at this position of the output, as the sampler would have said it.
Result<request::Sampled> sampled_from(const kernels::DrawnToken& drawn, size_t position);

}  // namespace sluice::runtime

// The ranks that compute one model together, as one of them sees them. Activations are f32 in host memory, or lie on the
// device of each rank.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "dist/communicator.h"
#include "kernels/backend.h"
#include "kernels/group_device.h"
#include "models/group/shared_sums.h"
#include "models/placement.h"
#include "tensor/tensor.h"

namespace sluice::models {

class ModelGroup {
 public:
  // REQUIRES: cuts.check(), world->size() == cuts.ranks()
  ModelGroup(std::shared_ptr<dist::Communicator> world, const Cuts& cuts,
             kernels::Collectives collectives = kernels::Collectives::Auto);
  // The leader ends the group: its next message to every other rank is an empty one.
  ~ModelGroup();
  ModelGroup(const ModelGroup&) = delete;
  ModelGroup& operator=(const ModelGroup&) = delete;

  // The ranks' activations will be those of this back-end. All ranks call it, before any of the calls below. Where
  // they lie on devices, these are joined; an error names what the device or the cut does not allow.
  Status use(std::shared_ptr<kernels::Backend> backend);
  // Ranks that compute on this one's device, itself among them; 1 on CPUs.
  int sharing_device() const { return sharing_device_; }
  // Throws GroupFailure where a rank did not come to a collective of the devices: looked at when a step's results are there.
  void expect_all() const;

  const Placement& placement() const { return placement_; }
  dist::Communicator& world() { return *world_; }
  // The next model is cut into stages of so many layers. All ranks call it.
  void cut_by(std::vector<int> stage_layers);
  // A pass has failed on this rank: the group cannot go on.
  void abandon();
  bool abandoned() const { return abandoned_; }
  bool leads() const { return world_->rank() == 0; }
  // The first rank of the last stage: it has the logits.
  int last_rank() const { return world_->size() - cuts_.group(); }

  // Memory for what this rank is to give to the next call of add_up() or add_up_rms_norm(), [n, width], which then need
  // not move it; empty: there is none, any other will do.
  TensorView part_memory(int64_t rows, int64_t width);
  // x[n, width] becomes its sum over the ranks that have the same layers and tokens.
  void add_up(TensorView x) { add_up(x, x); }
  // x = the sum of part, which is x or of part_memory().
  void add_up(TensorView x, TensorView part);
  // x.sum += x.b_scale * (x.b summed over these ranks), out = rms_norm(x.sum), where that is made in one.
  bool add_up_rms_norm(TensorView out, const kernels::Residual& x, const kernels::RmsGain& gain);
  // Rows i of x with kept[i] == 0 become zeros.
  void clear_rows(TensorView x, std::span<const int32_t> kept);
  // x[n, width], of which each of the ranks that share the tokens has the rows of its share of tokens, becomes whole.
  void gather_tokens(TensorView x);
  // The rows of this rank's share of tokens of x[n, width] become their sum; what the others hold is not said.
  void add_up_tokens(TensorView x);
  // parts[ranks * own rows, width] = of each of these ranks the rows of x[n, width] of this rank's share of tokens.
  void exchange_tokens(TensorView parts, TensorView x);
  // out[rows, width] = the rows of a step whose rows `range` are here, in `own`, and the others on the other ranks.
  void collect_rows(TensorView out, TensorView own, Range range, std::span<const int32_t> rows);
  // Memory for this rank's part in gather_columns() of so many columns, which then need not move it; empty: any other will do.
  TensorView column_memory(int64_t rows, int64_t columns);
  // out[n, vocab], complete on the first of these ranks: the columns of each from its part[n, share of vocab].
  void gather_columns(TensorView out, TensorView part);
  // The stream between two stages, [n, dim]. On CPUs the sender does not wait for the next stage.
  void receive_stream(TensorView x);
  void send_stream(TensorView x);
  // Between two layers: what was sent to other stages moves on.
  void progress() {
    if (!placement_.stage.whole()) world_->progress();
  }
  // Steps of which the stages have one each at the same time; 1: a step runs alone, through all of them. Where nothing else
  // is asked for, stages that share their cores take turns: each step has all cores, and all weights are read once for it.
  int steps_in_flight() const {
    if (collective_ != nullptr) return 1;
    return cuts_.micro_batches > 0 ? cuts_.micro_batches : stages_at_once_;
  }
  // Whether stages compute on the same cores of a host, one after the other.
  bool takes_turns() const {
    return collective_ == nullptr && stages_at_once_ < cuts_.stages && steps_in_flight() == 1;
  }
  // The next stage's turn begins with what this rank sends next.
  void end_turn() {
    if (takes_turns()) backend_->rest();
  }

 private:
  Status join_devices(kernels::GroupDevice& device);
  // Stages that compute at the same time, of ranks that compute with so many threads each.
  int find_stages_at_once(int threads);
  // The ranks that share a step's tokens.
  dist::Subgroup& token_group() { return cuts_.sequence ? group_ : context_; }
  SharedSums* shared_tokens() { return cuts_.sequence ? shared_.get() : shared_context_.get(); }
  // The bytes of every rank of a group, in their order.
  static std::vector<std::byte> gather_bytes(dist::Communicator& ranks, std::span<const std::byte> own);

  std::shared_ptr<dist::Communicator> world_;
  Cuts cuts_;
  Placement placement_;
  kernels::Collectives wanted_;
  dist::Subgroup group_;          // the ranks that have the same layers and tokens
  dist::Subgroup context_;        // those that have the same weights, each its share of the context
  std::vector<float> columns_;    // of another rank, or of a stream on its way to one
  std::vector<uint16_t> halves_;  // the latter, as bf16
  std::shared_ptr<kernels::Backend> backend_;              // outlives the collective
  std::unique_ptr<kernels::DeviceCollective> collective_;  // null: activations lie in host memory
  // Of ranks on one host, where activations lie in its memory; null: none.
  std::unique_ptr<SharedSums> shared_, shared_context_;
  int sharing_device_ = 1;
  int stages_at_once_ = 1;
  std::shared_ptr<std::byte> pinned_;  // a stream on its way to the device
  size_t pinned_bytes_ = 0;
  bool abandoned_ = false;
};

}  // namespace sluice::models

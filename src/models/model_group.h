// The ranks that compute one model together, as one of them sees them. Activations are f32 in host memory.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "dist/communicator.h"
#include "models/placement.h"
#include "tensor/tensor.h"

namespace sluice::models {

class ModelGroup {
 public:
  // REQUIRES: cuts.check(), world->size() == cuts.ranks()
  ModelGroup(std::shared_ptr<dist::Communicator> world, const Cuts& cuts);
  // The leader ends the group: its next message to every other rank is an empty one.
  ~ModelGroup();
  ModelGroup(const ModelGroup&) = delete;
  ModelGroup& operator=(const ModelGroup&) = delete;

  const Placement& placement() const { return placement_; }
  dist::Communicator& world() { return *world_; }
  // A pass has failed on this rank: the group cannot go on.
  void abandon();
  bool leads() const { return world_->rank() == 0; }
  // The first rank of the last stage: it has the logits.
  int last_rank() const { return world_->size() - group_.size(); }

  // x[n, width] becomes its sum over the ranks that have the same layers.
  void add_up(TensorView x);
  // x[n, width], of which each of these ranks has the rows of its share of tokens, becomes whole.
  void gather_tokens(TensorView x);
  // The rows of this rank's share of tokens of x[n, width] become their sum; what the others hold is not said.
  void add_up_tokens(TensorView x);
  // parts[ranks * own rows, width] = of each of these ranks the rows of x[n, width] of this rank's share of tokens.
  void exchange_tokens(TensorView parts, TensorView x);
  // out[rows, width] = the rows of a step whose rows `range` are here, in `own`, and the others on the other ranks.
  void collect_rows(TensorView out, TensorView own, Range range, std::span<const int32_t> rows);
  // out[n, vocab], complete on the first of these ranks: the columns of each from its part[n, share of vocab].
  void gather_columns(TensorView out, TensorView part);
  // The stream between two stages, [n, dim].
  void receive_stream(TensorView x);
  void send_stream(TensorView x);

 private:
  std::shared_ptr<dist::Communicator> world_;
  Placement placement_;
  dist::Subgroup group_;        // the ranks that have the same layers
  std::vector<float> columns_;  // of another rank
  bool abandoned_ = false;
};

}  // namespace sluice::models

#include "runtime/model_runner.h"

namespace sluice::runtime {

ModelRunner::ModelRunner(const models::Model& model, const KvMemoryOptions& memory)
    : model_(model),
      decoder_(model.spec(), model.weights, *model.backend),
      memory_(model.spec(), *model.backend, memory) {}

Result<std::unique_ptr<ModelRunner>> ModelRunner::make(const models::Model& model,
                                                       const KvMemoryOptions& memory,
                                                       const TierOptions& tiers) {
  auto runner = std::unique_ptr<ModelRunner>(new ModelRunner(model, memory));
  Result<std::unique_ptr<BlockMover>> mover = BlockMover::make(runner->memory_, tiers);
  if (!mover) return mover.error();
  runner->mover_ = std::move(*mover);
  return runner;
}

void ModelRunner::forward(Batch& batch, std::optional<std::span<const int32_t>> rows) {
  const kernels::RaggedBatch view = batch.view();
  decoder_.forward({.tokens = batch.tokens(),
                    .batch = view,
                    .kv = memory_.layers(),
                    .states = memory_.states(),
                    .state_batch = batch.state_view(),
                    .rows = rows});
}

void ModelRunner::read(std::span<const int32_t> rows, Wanted wanted, Rows& out) {
  const auto count = static_cast<int64_t>(rows.size());
  const auto fetch = [&](std::vector<float>& to, TensorView from) {
    to.resize(static_cast<size_t>(from.elements()));
    model_.backend->download(TensorView::contiguous(to.data(), DType::F32, {count, from.dim(1)}), from);
  };
  const TensorView hidden = decoder_.hidden(rows);
  if (wanted.hidden) fetch(out.hidden, hidden);
  if (wanted.logits) fetch(out.logits, decoder_.logits(hidden));
}

}  // namespace sluice::runtime

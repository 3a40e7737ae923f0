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
  decoder_.forward({.tokens = batch.tokens(), .batch = view, .kv = memory_.layers(), .rows = rows});
}

void ModelRunner::read(std::span<const int32_t> rows, bool logits, Rows& out) {
  const auto count = static_cast<int64_t>(rows.size());
  const int dim = model_.spec().dim, vocab = model_.spec().vocab;
  const TensorView hidden = decoder_.hidden(rows);
  out.hidden.resize(static_cast<size_t>(count * dim));
  model_.backend->download(TensorView::contiguous(out.hidden.data(), DType::F32, {count, dim}), hidden);
  out.logits.resize(logits ? static_cast<size_t>(count * vocab) : 0);
  if (!logits) return;
  model_.backend->download(TensorView::contiguous(out.logits.data(), DType::F32, {count, vocab}),
                           decoder_.logits(hidden));
}

}  // namespace sluice::runtime

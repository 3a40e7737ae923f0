#include "models/layers/context.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice::models {

namespace {

// out[rows, heads, width] from parts[ranks * rows, heads * width + heads]: what each rank attended to, then its lse.
void merge_parts(TensorView out, TensorView parts, int ranks) {
  const int64_t rows = out.dim(0), heads = out.dim(1), width = out.dim(2);
  std::vector<float> weights(static_cast<size_t>(ranks));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t head = 0; head < heads; ++head) {
      const auto part = [&](int rank) { return parts.at<float>(rank * rows + row); };
      const auto lse = [&](int rank) { return part(rank)[heads * width + head]; };
      float largest = lse(0), total = 0;
      for (int rank = 1; rank < ranks; ++rank) largest = std::max(largest, lse(rank));
      for (int rank = 0; rank < ranks; ++rank)
        total += weights[static_cast<size_t>(rank)] = std::exp(lse(rank) - largest);
      float* to = out.at<float>(row, head);
      std::fill_n(to, width, 0.0f);
      for (int rank = 0; rank < ranks; ++rank) {
        const float weight = weights[static_cast<size_t>(rank)] / total;
        const float* from = part(rank) + head * width;
        for (int64_t i = 0; i < width; ++i) to[i] += weight * from[i];
      }
    }
}

}  // namespace

ContextShare::ContextShare(ModelGroup& group, kernels::Backend& backend, Scratch& scratch)
    : group_(group),
      share_(group.placement().context),
      backend_(backend),
      scratch_(scratch),
      attention_(dynamic_cast<kernels::PartialAttention*>(&backend)) {
  SLUICE_CHECK(attention_ != nullptr);
}

void ContextShare::begin(const kernels::RaggedBatch& batch, Range own) {
  SLUICE_CHECK(batch.seen.empty());
  own_ = own;
  step_batch_ = batch;
  windows_.clear();
  own_batch_.positions =
      batch.positions.subspan(static_cast<size_t>(own.begin), static_cast<size_t>(own.size()));
  last_kept_.clear();
  kept_rows_.clear();
  kept_positions_.clear();
  kept_begin_.assign(1, 0);
  for (int sequence = 0; sequence < batch.sequences(); ++sequence) {
    const auto s = static_cast<size_t>(sequence);
    for (int32_t row = batch.query_begin[s]; row < batch.query_begin[s + 1]; ++row) {
      const int32_t position = batch.positions[static_cast<size_t>(row)];
      last_kept_.push_back(position < share_.index ? -1 : (position - share_.index) / share_.size);
      if (position % share_.size != share_.index) continue;
      kept_rows_.push_back(row);
      kept_positions_.push_back(position / share_.size);
    }
    kept_begin_.push_back(static_cast<int32_t>(kept_rows_.size()));
  }
  seen_batch_ = {.query_begin = batch.query_begin, .positions = last_kept_, .tables = batch.tables};
  kept_batch_ = {.query_begin = kept_begin_, .positions = kept_positions_, .tables = batch.tables};
}

// Attention takes the first key from a token's position and the window, the last one from `seen`: with a window of 1 the
// position is the first key. A token that sees none has its last key before its first.
const kernels::RaggedBatch& ContextShare::seen_by(kernels::AttentionShape& shape) {
  if (shape.window == 0) return seen_batch_;
  const int length = shape.window;
  const bool chunked = std::exchange(shape.chunked, false);
  shape.window = 1;
  for (const Window& window : windows_)
    if (window.length == length && window.chunked == chunked) return window.batch;
  Window& made = windows_.emplace_back();
  made.length = length;
  made.chunked = chunked;
  for (size_t i = 0; i < last_kept_.size(); ++i) {
    const int32_t position = step_batch_.positions[i];
    const int32_t begin = chunked ? position - position % length : std::max(0, position - length + 1);
    const int32_t first = (std::max(0, begin - share_.index) + share_.size - 1) / share_.size;
    made.first.push_back(first);
    made.last.push_back(std::max(last_kept_[i], first - 1));
  }
  made.batch = seen_batch_;
  made.batch.positions = made.first;
  made.batch.seen = made.last;
  return made.batch;
}

void ContextShare::store(TensorView all, const kernels::PagedKv& kv, const kernels::AttentionShape& shape) {
  const int64_t begin = int64_t{shape.heads} * shape.key_dim, keys = int64_t{shape.kv_heads} * shape.key_dim;
  const auto count = static_cast<int64_t>(kept_rows_.size());
  const TensorView kept = scratch_.get(Buffer::ContextKv, count, all.dim(1) - begin);
  backend_.gather_rows(kept, all.columns(begin, all.dim(1)), kept_rows_);
  const TensorView values =
      kept.dim(1) > keys ? kept.columns_as_heads(keys, shape.kv_heads, shape.value_dim) : TensorView();
  backend_.write_kv(kv, kept.columns_as_heads(0, shape.kv_heads, shape.key_dim), values, kept_batch_);
}

void ContextShare::attend(TensorView out, TensorView qkv, const kernels::PagedKv& kv,
                          kernels::AttentionShape shape) {
  const int64_t n = seen_batch_.tokens(), width = int64_t{shape.heads} * shape.value_dim;
  const TensorView all = scratch_.get(Buffer::Gathered, n, qkv.dim(1));
  backend_.copy(all.rows(own_.begin, own_.end), qkv);
  group_.gather_tokens(all);
  if (all.dim(1) > int64_t{shape.heads} * shape.key_dim) store(all, kv, shape);
  if (share_.index > 0) shape.sinks = {};  // one rank adds them
  const TensorView part = scratch_.get(Buffer::ContextPart, n, width + shape.heads);
  const TensorView lse = part.columns(width, width + shape.heads);
  const kernels::RaggedBatch& seen = seen_by(shape);
  attention_->attend_part({part.columns_as_heads(0, shape.heads, shape.value_dim), lse},
                          all.columns_as_heads(0, shape.heads, shape.key_dim), kv, seen, shape);
  const TensorView parts = scratch_.get(Buffer::ContextParts, share_.size * own_.size(), width + shape.heads);
  group_.exchange_tokens(parts, part);
  merge_parts(out, parts, share_.size);
}

}  // namespace sluice::models

#include "models/layers/context.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace sluice::models {

namespace {

// out f32 [rows, choices * most] = the lists of I32, numbers below 2^24; what they do not use is zero.
void put_lists(TensorView out, const ChosenBlocks& chosen, const kernels::RaggedBatch& batch) {
  const int64_t most = chosen.blocks.dim(2);
  for (int64_t row = 0; row < out.dim(0); ++row) {
    std::fill_n(out.at<float>(row), out.dim(1), 0.0f);
    const int64_t count = kernels::chosen_blocks(batch, row, most, chosen.size);
    for (int64_t choice = 0; choice < chosen.blocks.dim(1); ++choice)
      std::copy_n(chosen.blocks.at<int32_t>(row, choice), count, out.at<float>(row) + choice * most);
  }
}

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
  own_begin_.clear();
  for (const int32_t begin : batch.query_begin)
    own_begin_.push_back(static_cast<int32_t>(std::clamp<int64_t>(begin, own.begin, own.end) - own.begin));
  own_batch_ = {
      .query_begin = own_begin_,
      .positions = batch.positions.subspan(static_cast<size_t>(own.begin), static_cast<size_t>(own.size())),
      .tables = batch.tables};
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

TensorView ContextShare::gathered(TensorView own) {
  const TensorView all = scratch_.get(Buffer::Gathered, step_batch_.tokens(), own.dim(1));
  backend_.copy(own_rows(all), own);
  group_.gather_tokens(all);
  return all;
}

// Keys that are kept here lie share_.size positions apart. Their biases are those of the distance to where the kernel
// believes the query, which for all keys of a query differ from its own ones by the same number: that goes into the sum.
void ContextShare::attend_part(const kernels::PartialAttended& to, TensorView q, const kernels::PagedKv& kv,
                               kernels::AttentionShape shape) {
  const kernels::RaggedBatch& seen = seen_by(shape);
  if (shape.alibi.empty()) return attention_->attend_part(to, q, kv, seen, shape);
  SLUICE_CHECK(shape.alibi.device == Device::Cpu && shape.sinks.empty());
  const float* slopes = std::exchange(shape.alibi, {}).at<float>();
  slopes_.assign(slopes, slopes + shape.heads);
  for (float& slope : slopes_) slope *= static_cast<float>(share_.size);
  shape.alibi = TensorView::contiguous(slopes_.data(), DType::F32, {shape.heads});
  attention_->attend_part(to, q, kv, seen, shape);
  for (int64_t row = 0; row < seen.tokens(); ++row) {
    const auto i = static_cast<size_t>(row);
    const int64_t believed = int64_t{seen.positions[i]} * share_.size + share_.index;
    const auto beyond = static_cast<float>(believed - step_batch_.positions[i]);
    for (int64_t head = 0; head < shape.heads; ++head) to.lse.at<float>(row)[head] += slopes[head] * beyond;
  }
}

int64_t ContextShare::kept_of(int32_t* out, const float* list, int64_t row,
                              const kernels::ChosenKeys& keys) const {
  const int64_t most = keys.blocks.dim(2);
  const int64_t count = kernels::chosen_blocks(step_batch_, row, most, keys.size);
  if (keys.size == 1) {
    int64_t kept = 0;
    for (int64_t i = 0; i < count; ++i)
      if (const auto position = static_cast<int32_t>(list[i]); position % share_.size == share_.index)
        out[kept++] = position / share_.size;
    return kept;
  }
  // Every block has as many positions on each rank; of the last one a token sees the first.
  const int64_t size = keys.size / share_.size;
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>(list[i]);
  const int64_t last = last_kept_[static_cast<size_t>(row)] + 1 - out[count - 1] * size;
  return (count - 1) * size + last;
}

void ContextShare::attend_chosen(const kernels::PartialAttended& to, TensorView q,
                                 const kernels::ChosenKeys& keys, TensorView lists,
                                 const kernels::AttentionShape& shape) {
  const TensorView& kept = keys.blocks;
  const int64_t most = kept.dim(2);
  std::fill_n(static_cast<int32_t*>(kept.data), kept.elements(), 0);
  chosen_seen_.clear();
  for (int64_t row = 0; row < kept.dim(0); ++row) {
    int64_t count = 0;
    for (int64_t choice = 0; choice < kept.dim(1); ++choice)
      count = kept_of(kept.at<int32_t>(row, choice), lists.at<float>(row) + choice * most, row, keys);
    chosen_seen_.push_back(static_cast<int32_t>(count) - 1);
  }
  const kernels::RaggedBatch seen{.query_begin = step_batch_.query_begin,
                                  .positions = step_batch_.positions,
                                  .tables = step_batch_.tables,
                                  .seen = chosen_seen_};
  const int size = keys.size == 1 ? 1 : keys.size / share_.size;
  attention_->attend_chosen_part(to, q, {keys.kv, kept, size}, seen, shape);
}

void ContextShare::attend(TensorView out, TensorView qkv, const kernels::PagedKv& kv,
                          kernels::AttentionShape shape, const ChosenBlocks& chosen) {
  const int64_t n = step_batch_.tokens(), width = int64_t{shape.heads} * shape.value_dim;
  const bool chooses = !chosen.blocks.empty();
  const int64_t listed = chooses ? chosen.blocks.dim(1) * chosen.blocks.dim(2) : 0;
  const TensorView all = scratch_.get(Buffer::Gathered, n, qkv.dim(1) + listed);
  backend_.copy(own_rows(all).columns(0, qkv.dim(1)), qkv);
  const TensorView lists = all.columns(qkv.dim(1), all.dim(1));
  if (chooses) put_lists(own_rows(lists), chosen, own_batch_);
  group_.gather_tokens(all);
  const TensorView heads = all.columns(0, qkv.dim(1));
  if (heads.dim(1) > int64_t{shape.heads} * shape.key_dim) store(heads, kv, shape);
  if (share_.index > 0) shape.sinks = {};  // one rank adds them
  const TensorView part = scratch_.get(Buffer::ContextPart, n, width + shape.heads);
  const kernels::PartialAttended to{part.columns_as_heads(0, shape.heads, shape.value_dim),
                                    part.columns(width, width + shape.heads)};
  const TensorView q = heads.columns_as_heads(0, shape.heads, shape.key_dim);
  if (chooses) {
    const TensorView kept = scratch_.get(Buffer::ContextChosen, n, listed, DType::I32)
                                .columns_as_heads(0, chosen.blocks.dim(1), chosen.blocks.dim(2));
    attend_chosen(to, q, {kv, kept, chosen.size}, lists, shape);
  } else {
    attend_part(to, q, kv, shape);
  }
  const TensorView parts = scratch_.get(Buffer::ContextParts, share_.size * own_.size(), width + shape.heads);
  group_.exchange_tokens(parts, part);
  merge_parts(out, parts, share_.size);
}

}  // namespace sluice::models

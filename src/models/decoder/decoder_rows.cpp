// What a step of the decoder leaves behind: rows of its stream, their norms and their logits.
#include <algorithm>

#include "models/decoder/decoder.h"
#include "models/layers/layers.h"

namespace sluice::models {

void Decoder::drop_rows(std::span<const int32_t> rows, TensorView& x, TensorView& branch) {
  const auto count = static_cast<int64_t>(rows.size());
  if (count == step_rows_ || spec_.per_layer_embedding > 0) return;
  kept_.emplace(rows.begin(), rows.end());
  if (rows.empty()) {
    x = x.rows(0, 0);
    pending_output_proj_.reset();
    sum_pending_ = false;
    part_ = {};
    return;
  }
  const auto keep = [&](Buffer buffer, TensorView from) {
    const TensorView out = scratch_.get(buffer, count, from.dim(1));
    split_ ? group_->collect_rows(out, from, own_rows_, rows) : backend_.gather_rows(out, from, rows);
    return out;
  };
  x = stream_ = keep(Buffer::KeptStream, x);
  if (pending_output_proj_) {
    pending_output_proj_->x = keep(Buffer::KeptInput, pending_output_proj_->x);
    branch = scratch_.get(Buffer::KeptBranch, count, spec_.dim);
  } else {
    branch = keep(Buffer::KeptBranch, sum_pending_ ? part_of(branch) : branch);
    part_ = {};
  }
  split_ = false;  // every rank has the rows that are left
}

void Decoder::tap(size_t layer, TensorView x) {
  for (size_t i = 0; i < taps_.size(); ++i) {
    if (taps_[i] != static_cast<int>(layer)) continue;
    const auto begin = static_cast<int64_t>(i) * spec_.dim;
    const TensorView all =
        scratch_.get(Buffer::Tapped, x.dim(0), static_cast<int64_t>(taps_.size()) * spec_.dim);
    backend_.copy(all.columns(begin, begin + spec_.dim), x);
  }
}

TensorView Decoder::tapped(std::span<const int32_t> rows) {
  const int64_t width = static_cast<int64_t>(taps_.size()) * spec_.dim;
  const TensorView out = scratch_.get(Buffer::TappedRows, static_cast<int64_t>(rows.size()), width);
  backend_.gather_rows(out, scratch_.get(Buffer::Tapped, step_rows_, width), rows);
  return out;
}

// [layers * rows, width of the widest layer]
TensorView Decoder::query_memory(size_t rows) {
  int64_t width = 0;
  for (const LayerSpec& layer : spec_.layers)
    if (const auto* mixer = std::get_if<Attention>(&layer.mixer))
      width = std::max(width, int64_t{mixer->heads} * mixer->head_dim);
  return scratch_.get(Buffer::Queries, static_cast<int64_t>(spec_.layers.size() * rows), width);
}

// The layer's mixer has run: its queries are still where it rotated them.
void Decoder::copy_queries(size_t layer, int64_t step_rows) {
  const auto* mixer = std::get_if<Attention>(&spec_.layers[layer].mixer);
  const auto* weights = std::get_if<AttentionWeights>(&weights_.layers[layer].mixer);
  if (mixer == nullptr || weights == nullptr) return;
  const TensorView qkv = scratch_.get(Buffer::Qkv, step_rows, qkv_row(*mixer, *weights));
  const TensorView all = query_memory(query_rows_.size());
  const int64_t width = int64_t{mixer->heads} * mixer->head_dim;
  auto to = static_cast<int64_t>(layer * query_rows_.size());
  for (const int32_t row : query_rows_) {
    backend_.copy(all.rows(to, to + 1).columns(0, width), qkv.rows(row, row + 1).columns(0, width));
    ++to;
  }
}

TensorView Decoder::queries(size_t layer) {
  const auto* mixer = std::get_if<Attention>(&spec_.layers[layer].mixer);
  SLUICE_CHECK(mixer != nullptr && kept_queries_ > 0);
  const auto begin = static_cast<int64_t>(layer * kept_queries_);
  return query_memory(kept_queries_)
      .rows(begin, begin + static_cast<int64_t>(kept_queries_))
      .columns(0, int64_t{mixer->heads} * mixer->head_dim);
}

TensorView Decoder::stream(std::span<const int32_t> rows) {
  const TensorView chosen = scratch_.get(Buffer::Rows, static_cast<int64_t>(rows.size()), spec_.dim);
  std::vector<int32_t> places(rows.begin(), rows.end());
  for (int32_t& row : places) {
    if (!kept_) break;
    const auto found = std::lower_bound(kept_->begin(), kept_->end(), row);
    SLUICE_CHECK(found != kept_->end() && *found == row);
    row = static_cast<int32_t>(found - kept_->begin());
  }
  if (split_) {
    group_->collect_rows(chosen, stream_, own_rows_, places);
  } else {
    backend_.gather_rows(chosen, stream_, places);
  }
  return chosen;
}

TensorView Decoder::hidden(std::span<const int32_t> rows) {
  const TensorView chosen = stream(rows);
  if (!spec_.output_norm) return chosen;
  const TensorView out = scratch_.get(Buffer::Hidden, chosen.dim(0), spec_.dim);
  norm(out, chosen, weights_.output_norm);
  return out;
}

// Of a group that cuts the vocabulary the first rank makes its columns where those of all are to be, the others where that
// one reads them.
TensorView Decoder::logits_memory(int64_t rows) {
  const int64_t own = weights_.output.rows;
  if (own == spec_.vocab || group_ == nullptr || group_->placement().tensor.whole())
    return scratch_.get(Buffer::Logits, rows, own);
  const TensorView part = group_->column_memory(rows, spec_.vocab);
  if (!part.empty()) return part;
  if (group_->placement().tensor.index > 0 || backend_.async_device() != nullptr)
    return scratch_.get(Buffer::Logits, rows, own);
  return scratch_.get(Buffer::AllLogits, rows, spec_.vocab).columns(0, own);
}

TensorView Decoder::logits(TensorView hidden) {
  if (clock_ != nullptr) clock_->start();
  const TensorView out = logits_memory(hidden.dim(0));
  if (spec_.embedding_dim > 0) {
    const TensorView narrow = scratch_.get(Buffer::Embedded, hidden.dim(0), spec_.embedding_dim);
    backend_.matmul(narrow, hidden, weights_.embedding_out);
    hidden = narrow;
  }
  backend_.matmul(out, hidden, weights_.output);
  if (spec_.logit_scale != 1.0f) backend_.scale(out, spec_.logit_scale);
  if (spec_.logit_softcap > 0.0f) backend_.softcap(out, spec_.logit_softcap);
  if (clock_ != nullptr) clock_->end_logits();
  if (out.dim(1) == spec_.vocab || group_->placement().tensor.whole()) return out;
  const TensorView all = scratch_.get(Buffer::AllLogits, hidden.dim(0), spec_.vocab);
  group_->gather_columns(all, out);
  return all;
}

}  // namespace sluice::models

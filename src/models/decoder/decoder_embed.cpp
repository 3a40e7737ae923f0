// What enters the first layer, which ranks sum what its parts give, and where they share the tokens, how their rows meet.
#include <algorithm>
#include <utility>

#include "models/decoder/decoder.h"

namespace sluice::models {

ModelGroup* Decoder::expert_group() const {
  if (group_ == nullptr || group_->placement().experts.whole()) return nullptr;
  return group_->placement().tensor.whole() ? group_ : nullptr;
}

ModelGroup* Decoder::tensor_group() const {
  return group_ == nullptr || group_->placement().tensor.whole() ? nullptr : group_;
}

TensorView Decoder::own_rows_of(TensorView all) const {
  return all.rows(own_rows_.begin, own_rows_.end);
}

TensorView Decoder::gathered(TensorView own) {
  const TensorView all = scratch_.get(Buffer::Gathered, step_rows_, own.dim(1));
  backend_.copy(own_rows_of(all), own);
  group_->gather_tokens(all);
  return all;
}

void Decoder::look_up(TensorView out, const Weight& table, std::span<const Token> tokens) {
  const bool whole = group_ == nullptr || group_->placement().tensor.whole();
  if (whole || !gathers())
    tokens = tokens.subspan(static_cast<size_t>(own_rows_.begin), static_cast<size_t>(out.dim(0)));
  if (whole) return backend_.embed(out, table, tokens);
  const Range own = group_->placement().tensor.of(spec_.vocab);
  const TensorView all =
      gathers() ? scratch_.get(Buffer::Gathered, static_cast<int64_t>(tokens.size()), out.dim(1)) : out;
  const auto has = [&](Token token) { return token >= own.begin && token < own.end; };
  own_tokens_.clear();
  own_rows_kept_.clear();
  for (const Token token : tokens) {
    own_tokens_.push_back(has(token) ? static_cast<Token>(token - own.begin) : Token{0});
    own_rows_kept_.push_back(has(token) ? 1 : 0);
  }
  backend_.embed(all, table, own_tokens_);
  group_->clear_rows(all, own_rows_kept_);
  if (!gathers()) return group_->add_up(all);
  group_->add_up_tokens(all);
  backend_.copy(out, own_rows_of(all));
}

bool Decoder::scales_behind_norm() const {
  const bool plain = spec_.embedding_scale != 1.0f && spec_.positions == Positions::None &&
                     !spec_.embedding_norm && spec_.streams.count == 0 && spec_.norm == NormKind::Rms;
  return plain && !spec_.layers.empty() && spec_.layers.front().wiring == Wiring::Sandwich &&
         std::none_of(spec_.layers.begin(), spec_.layers.end(), reads_tokens);
}

void Decoder::scale_embeddings(const StepInput& input, TensorView x) {
  const float factor = std::exchange(embedding_scale_, 1.0f);
  if (factor == 1.0f) return;
  backend_.scale(x, factor);
  for (const EmbeddedRows& rows : input.embedded)  // which are not scaled
    backend_.copy(x.rows(rows.row, rows.row + rows.values.dim(0)), rows.values.columns(0, spec_.dim));
}

void Decoder::embed(const StepInput& input, TensorView x) {
  if (spec_.embedding_dim > 0) {
    const TensorView narrow = scratch_.get(Buffer::Embedded, x.dim(0), spec_.embedding_dim);
    look_up(narrow, weights_.embedding, input.tokens);
    backend_.matmul(x, narrow, weights_.embedding_in);
  } else {
    look_up(x, weights_.embedding, input.tokens);
  }
  if (scales_behind_norm()) {
    embedding_scale_ = spec_.embedding_scale;
  } else if (spec_.embedding_scale != 1.0f) {
    backend_.scale(x, spec_.embedding_scale);
  }
  if (std::any_of(spec_.layers.begin(), spec_.layers.end(), reads_tokens))
    backend_.copy(scratch_.get(Buffer::Embedded, x.dim(0), spec_.dim), x);
  for (const EmbeddedRows& rows : input.embedded) {
    const TensorView own = x.rows(rows.row, rows.row + rows.values.dim(0));
    backend_.copy(own, rows.values.columns(0, spec_.dim));
    if (embedding_scale_ != 1.0f) backend_.scale(own, 1.0f / embedding_scale_);
  }
  if (spec_.positions != Positions::None) {
    const auto first = input.batch.positions.begin();
    std::vector<int32_t> rows(first + own_rows_.begin, first + own_rows_.end);
    for (int32_t& row : rows) row += spec_.position_offset;
    const TensorView positions = scratch_.get(Buffer::Branch, x.dim(0), spec_.dim);
    backend_.embed(positions, weights_.positions, rows);
    backend_.add(x, x, positions);
  }
  if (spec_.embedding_norm) norm(x, x, weights_.embedding_norm);
}

}  // namespace sluice::models

#include "kernels/cpu/gemm/expert_groups.h"

#include <algorithm>

namespace sluice::kernels::cpu {

void ExpertGroups::assign(const TensorView& ids, const ExpertBank& bank) {
  const int64_t tokens = ids.dim(0);
  slots_ = ids.dim(1);
  counts_.assign(bank.down.size(), 0);
  const auto for_pairs = [&](const auto& pair) {
    for (int64_t token = 0; token < tokens; ++token)
      for (int64_t slot = 0; slot < slots_; ++slot)
        if (const int32_t expert = ids.at<int32_t>(token)[slot]; bank.has(expert))
          pair(static_cast<size_t>(token * slots_ + slot), static_cast<size_t>(expert - bank.first));
  };
  for_pairs([&](size_t, size_t expert) { ++counts_[expert]; });
  groups_.clear();
  group_of_.assign(bank.down.size(), -1);
  pairs_ = tiles_ = 0;
  for (size_t expert = 0; expert < counts_.size(); ++expert) {
    const int64_t count = counts_[expert];
    if (count == 0) continue;
    group_of_[expert] = static_cast<int64_t>(groups_.size());
    groups_.push_back({expert, pairs_, count, tiles_});
    counts_[expert] = pairs_;  // from here on: where its next pair goes
    pairs_ += count;
    tiles_ += TokenTiles::count(count);
  }
  places_.assign(static_cast<size_t>(tokens * slots_), -1);
  for_pairs([&](size_t pair, size_t expert) { places_[pair] = counts_[expert]++; });
}

ExpertForms::ExpertForms(const Kernels& kernels, const Needs& needs, int64_t cols, const ExpertGroups& groups,
                         ActivationScratch& scratch)
    : kernels_(kernels), needs_(needs), cols_(cols), per_row_(blocks_per_row(cols)) {
  const int64_t rows = groups.pairs() * per_row_, words = groups.tiles() * kTileTokens * 64 * per_row_;
  if (needs.blocks) blocks_ = grown(scratch.blocks, rows);
  if (needs.split) split_ = grown(scratch.split, rows);
  if (needs.panels) panels_ = grown(scratch.panels, rows);
  const bool tiled =
      std::any_of(groups.all().begin(), groups.all().end(), [&](const auto& g) { return takes_tiles(g); });
  if (needs.panels && tiled) tiles_ = grown(scratch.tiles, groups.tiles() * per_row_);
  if (needs.words) bf16_ = {grown(scratch.bf16, words)};
  if (needs.columns) columns_ = grown(scratch.columns, groups.pairs() * cols);
}

void ExpertForms::make_row(const ExpertGroup& group, int64_t pair, const float* row,
                           ColumnRange columns) const {
  const int64_t first = columns.begin / 32, count = blocks_per_row(columns.end) - first;
  const int64_t at = pair * per_row_ + first;
  row += columns.begin;
  if (needs_.blocks) kernels_.stored.quantize(blocks_ + at, row, count);
  if (needs_.split) kernels_.stored.split(split_ + at, row, columns.end - columns.begin);
  if (!needs_.panels) return;
  if (!takes_tiles(group)) return kernels_.panels.quantize(panels_ + at, row, count);
  const int64_t token = pair - group.begin;
  kernels_.panels.quantize_tiles(tiles_ + (group.tile + token / kTileTokens) * per_row_ + first,
                                 token % kTileTokens, row, count);
}

void ExpertForms::make_or_copy(const ExpertGroup& group, int64_t pair, const float* row, Made& made) const {
  const bool by_token = !takes_tiles(group);
  // Tiles of levels differ in where a token's bytes lie, so that each of its experts makes them.
  const bool copies = made.codes >= 0 && (!needs_.panels || (by_token && made.panels >= 0));
  if (copies) {
    const int64_t to = pair * per_row_, from = made.codes * per_row_;
    if (needs_.blocks) std::copy_n(blocks_ + from, per_row_, blocks_ + to);
    if (needs_.split) std::copy_n(split_ + from, per_row_, split_ + to);
    if (needs_.panels) std::copy_n(panels_ + made.panels * per_row_, per_row_, panels_ + to);
    return;
  }
  make_row(group, pair, row, {0, cols_});
  made.codes = pair;
  if (by_token) made.panels = pair;
}

void ExpertForms::make_tiles(const ExpertGroup& group, const TensorView& x, ColumnRange columns) const {
  if (needs_.words) {
    for (int64_t tile = 0; tile < TokenTiles::count(group.count); ++tile)
      kernels_.panels.words->fill(
          tile_fill(x, bf16_of(group), tile, columns.begin / 32, blocks_per_row(columns.end)));
  }
  // One token lies in its columns already.
  if (needs_.columns && group.count > 1)
    for_column_fills(x, *kernels_.panels.columns, columns_ + group.begin * cols_, columns,
                     kernels_.panels.columns->fill);
}

Activations ExpertForms::of(const ExpertGroup& group, const TensorView& x) const {
  const int64_t at = group.begin * per_row_;
  Activations own;
  if (needs_.blocks) own.blocks = blocks_ + at;
  if (needs_.split) own.split = split_ + at;
  if (needs_.panels && takes_tiles(group)) own.tiles = tiles_ + group.tile * per_row_;
  if (needs_.panels && !takes_tiles(group)) own.panels = panels_ + at;
  if (needs_.words) own.bf16 = bf16_of(group);
  if (needs_.columns) own.columns = group.count == 1 ? x.at<float>() : columns_ + group.begin * cols_;
  return own;
}

}  // namespace sluice::kernels::cpu

// GEMMs on all threads: rows are shared out, tokens are not, so a weight is read by one core only. Many
// tokens are taken in groups whose activations stay in a core's cache while its rows pass by.
#include <algorithm>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/gemm/activations.h"
#include "kernels/cpu/panels/format.h"
#include "kernels/host.h"

namespace sluice::kernels::cpu {

namespace {

constexpr int64_t kActivationBytes = 256 * 1024;
constexpr int64_t kWeightBytes = 256 * 1024;
constexpr int64_t kFillPieces = 16;  // of 16 tokens, made into tiles of bf16 in one go

bool is_weight(DType type) {
  return type != DType::I8 && type != DType::I32 && type != DType::U8;
}

void check_gemm(const TensorView& out, const TensorView& x, const Weight& weight) {
  SLUICE_CHECK_EQ(x.dim(1), weight.cols);
  SLUICE_CHECK_EQ(out.dim(1), weight.rows);
  SLUICE_CHECK_EQ(out.dim(0), x.dim(0));
  for (const TensorView& part : weight.parts) SLUICE_CHECK(is_weight(part.dtype));
}

// Words of the tiles of `tokens` tokens.
int64_t tile_words(int64_t tokens, const Weight& weight) {
  return TokenTiles::offset(TokenTiles::count(tokens), 0, blocks_per_row(weight.cols),
                            TokenTiles::width(tokens));
}

}  // namespace

Activations CpuBackend::prepare_activations(TensorView x, const Weight& weight) {
  const int64_t per_row = blocks_per_row(weight.cols);
  const Needs needs(weight, {kernels_, panel_kernels_});
  ActivationBlock* blocks = needs.blocks ? grown(forms_.blocks, row_count(x) * per_row) : nullptr;
  SplitBlock* split = needs.split ? grown(forms_.split, row_count(x) * per_row) : nullptr;
  const bool tiled = needs.panels && panel_kernels_.takes_tiles(row_count(x));
  PanelActivations* panels = needs.panels && !tiled ? grown(forms_.panels, row_count(x) * per_row) : nullptr;
  ActivationTile* tiles = tiled ? grown(forms_.tiles, TokenTiles::count(row_count(x)) * per_row) : nullptr;
  if (needs.blocks || needs.split || panels != nullptr) {
    for_rows(row_count(x), weight.cols, [&](int64_t i) {
      const float* row = row_at<float>(x, i);
      if (needs.blocks) kernels_.quantize(blocks + i * per_row, row, per_row);
      if (needs.split) kernels_.split(split + i * per_row, row, weight.cols);
      if (panels != nullptr) panel_kernels_.quantize(panels + i * per_row, row, per_row);
    });
  }
  if (tiled) fill_int_tiles(tiles, x);
  TokenTiles bf16;
  if (needs.words) {
    const int64_t words = tile_words(x.dim(0), weight);
    bf16 = {grown(forms_.bf16, words)};
    const int64_t fills = (per_row + kFillPieces - 1) / kFillPieces;
    for_rows(TokenTiles::count(x.dim(0)) * fills, 32 * kFillPieces * TokenTiles::width(x.dim(0)),
             [&](int64_t i) {
               const int64_t begin = i % fills * kFillPieces;
               panel_kernels_.words->fill(
                   tile_fill(x, bf16, i / fills, begin, std::min(begin + kFillPieces, per_row)));
             });
  }
  return {blocks, split, panels, tiles, bf16, needs.columns ? column_tiles(x) : nullptr};
}

// Tokens of a tile lie in the same lines: one thread writes them all.
void CpuBackend::fill_int_tiles(ActivationTile* tiles, TensorView x) {
  const int64_t tokens = row_count(x), per_row = blocks_per_row(x.dim(-1));
  const int64_t fills = (per_row + kFillPieces - 1) / kFillPieces;
  for_rows(TokenTiles::count(tokens) * fills, 32 * kFillPieces * std::min(tokens, kTileTokens),
           [&](int64_t i) {
             const int64_t tile = i / fills, begin = i % fills * kFillPieces;
             const int64_t count = std::min(kFillPieces, per_row - begin),
                           end = std::min(tokens, (tile + 1) * kTileTokens);
             for (int64_t token = tile * kTileTokens; token < end; ++token)
               panel_kernels_.quantize_tiles(tiles + tile * per_row + begin, token % kTileTokens,
                                             row_at<float>(x, token) + 32 * begin, count);
           });
}

// One token lies in its columns already.
const float* CpuBackend::column_tiles(TensorView x) {
  if (x.dim(0) == 1) return x.at<float>();
  float* to = grown(forms_.columns, x.dim(0) * x.dim(1));
  std::vector<ColumnFill> fills;
  constexpr int64_t kColumns = 1024;
  for (int64_t begin = 0; begin < x.dim(1); begin += kColumns)
    for_column_fills(x, *panel_kernels_.columns, to, {begin, std::min(begin + kColumns, x.dim(1))},
                     [&](const ColumnFill& fill) { fills.push_back(fill); });
  for_rows(static_cast<int64_t>(fills.size()), x.dim(0) * x.dim(1) / static_cast<int64_t>(fills.size()),
           [&](int64_t i) { panel_kernels_.columns->fill(fills[static_cast<size_t>(i)]); });
  return to;
}

namespace {

int64_t row_groups_of(const TensorView& part) {
  return (part.dim(0) + kRowGroup - 1) / kRowGroup;
}

// What the calls for the parts of one weight and one group of tokens share.
struct TokenGroup {
  TensorView out, x;
  const ActivationBlock* blocks;
  const SplitBlock* split;
  const PanelActivations* panels;
  const ActivationTile* tiles;
  TokenTiles bf16;
  const float* columns;
  int64_t width;  // of the tiles of bf16
};

// Rows [from, to) of a part that begins at row `first` of the weight.
struct PartRows {
  const TensorView& part;
  int64_t first, from, to;
};

Gemm stored_gemm(const TokenGroup& tokens, const Weight& weight, const PartRows& rows) {
  const int64_t row = rows.first + rows.from;
  return {.type = rows.part.dtype,
          .weights = static_cast<const uint8_t*>(rows.part.data) +
                     rows.from * row_bytes(rows.part.dtype, weight.cols),
          .rows = rows.to - rows.from,
          .cols = weight.cols,
          .tokens = tokens.x.dim(0),
          .bias = weight.bias.empty() ? nullptr : weight.bias.at<float>() + row,
          .out = tokens.out.at<float>() + row,
          .out_stride = tokens.out.stride[0],
          .x = tokens.x.at<float>(),
          .x_stride = tokens.x.stride[0],
          .blocks = tokens.blocks,
          .split = tokens.split};
}

PanelGemm panel_gemm(const TokenGroup& tokens, const Weight& weight, const PartRows& rows,
                     const uint8_t* panels) {
  const int64_t row = rows.first + rows.from;
  const int64_t panel_bytes = panel_format(rows.part.dtype).panel_bytes(weight.cols);
  return {.type = rows.part.dtype,
          .panels = panels + rows.from / kPanelRows * panel_bytes,
          .rows = rows.to - rows.from,
          .cols = weight.cols,
          .tokens = tokens.x.dim(0),
          .bias = weight.bias.empty() ? nullptr : weight.bias.at<float>() + row,
          .out = tokens.out.at<float>() + row,
          .out_stride = tokens.out.stride[0],
          .x = tokens.panels,
          .tiles = tokens.tiles};
}

TileGemm tile_gemm(const TokenGroup& tokens, const Weight& weight, const PartRows& rows,
                   const uint8_t* panels) {
  const int64_t row = rows.first + rows.from;
  const int64_t panel_bytes = kWordsFormat.panel_bytes(weight.cols);
  return {.panels = panels + rows.from / kPanelRows * panel_bytes,
          .rows = rows.to - rows.from,
          .cols = weight.cols,
          .tokens = tokens.x.dim(0),
          .bias = weight.bias.empty() ? nullptr : weight.bias.at<float>() + row,
          .out = tokens.out.at<float>() + row,
          .out_stride = tokens.out.stride[0],
          .x = tokens.bf16,
          .width = tokens.width};
}

ColumnGemm column_gemm(const TokenGroup& tokens, const Weight& weight, const PartRows& rows,
                       const uint8_t* panels) {
  const int64_t row = rows.first + rows.from;
  const int64_t bytes = panel_bytes(rows.part.dtype, PanelLayout::Columns, weight.cols);
  return {.type = rows.part.dtype,
          .panels = panels + rows.from / kPanelRows * bytes,
          .rows = rows.to - rows.from,
          .cols = weight.cols,
          .tokens = tokens.x.dim(0),
          .bias = weight.bias.empty() ? nullptr : weight.bias.at<float>() + row,
          .out = tokens.out.at<float>() + row,
          .out_stride = tokens.out.stride[0],
          .x = tokens.columns};
}

// Tokens from `token` on; `x` and `out` hold those of the group.
TokenGroup tokens_from(int64_t token, const Activations& all, TensorView out, TensorView x, int64_t width) {
  const int64_t block = token * ((x.dim(1) + 31) / 32);
  return {out,
          x,
          all.blocks == nullptr ? nullptr : all.blocks + block,
          all.split == nullptr ? nullptr : all.split + block,
          all.panels == nullptr ? nullptr : all.panels + block,
          all.tiles == nullptr ? nullptr : all.tiles + block / kTileTokens,
          all.bf16.words == nullptr ? TokenTiles{} : TokenTiles{all.bf16.words + 64 * block},
          all.columns == nullptr ? nullptr : all.columns + token * x.dim(1),
          width};
}

void gemm_parts(const TokenGroup& tokens, const Weight& weight, const Kernels& kernels,
                const RowGroups& groups) {
  int64_t first_group = 0, first_row = 0;
  for (size_t i = 0; i < weight.parts.size(); ++i) {
    const TensorView& part = weight.parts[i];
    const PartRows rows{part, first_row, std::max<int64_t>(0, groups.begin - first_group) * kRowGroup,
                        std::min((groups.end - first_group) * kRowGroup, part.dim(0))};
    first_group += row_groups_of(part);
    first_row += part.dim(0);
    if (rows.from >= rows.to) continue;
    const uint8_t* panels = panels_of(weight, i);
    if (panels == nullptr) {
      kernels.stored.gemm(stored_gemm(tokens, weight, rows));
      continue;
    }
    switch (kernels.panels.layout(part.dtype)) {
      case PanelLayout::Words:
        kernels.panels.words->gemm(tile_gemm(tokens, weight, rows, panels));
        break;
      case PanelLayout::Columns:
        kernels.panels.columns->gemm(column_gemm(tokens, weight, rows, panels));
        break;
      case PanelLayout::Quads:
      case PanelLayout::Pairs:
        kernels.panels.gemm(panel_gemm(tokens, weight, rows, panels));
        break;
    }
  }
}

// Row groups whose weights stay in a core's cache while the groups of tokens pass by.
int64_t row_groups_at_once(const Weight& weight) {
  int64_t bytes = 1;
  for (const TensorView& part : weight.parts)
    bytes = std::max(bytes, kRowGroup * row_bytes(part.dtype, weight.cols));
  return std::max<int64_t>(1, kWeightBytes / bytes);
}

}  // namespace

int64_t row_groups(const Weight& weight) {
  int64_t groups = 0;
  for (const TensorView& part : weight.parts) groups += row_groups_of(part);
  return groups;
}

// Tokens whose activations stay in a core's cache while its rows pass by.
int64_t CpuBackend::tokens_at_once(const Weight& weight, const Activations& activations) {
  if (activations.bf16.words != nullptr || activations.tiles != nullptr || activations.columns != nullptr)
    return kMostTiledTokens;
  const bool bytes = activations.blocks != nullptr || activations.panels != nullptr;
  return std::max<int64_t>(16, kActivationBytes / (weight.cols * (bytes ? 2 : 4)) / 4 * 4);
}

void CpuBackend::gemm_groups(TensorView out, TensorView x, const Weight& weight,
                             const Activations& activations, RowGroups groups) const {
  const int64_t tokens = x.dim(0);
  const int64_t group = tokens_at_once(weight, activations);
  const int64_t rows = tokens > group ? row_groups_at_once(weight) : groups.end - groups.begin;
  for (int64_t first = groups.begin; first < groups.end; first += rows) {
    for (int64_t token = 0; token < tokens; token += group) {
      const int64_t last = std::min(tokens, token + group);
      const TokenGroup taken = tokens_from(token, activations, out.rows(token, last), x.rows(token, last),
                                           TokenTiles::width(tokens));
      gemm_parts(taken, weight, {kernels_, panel_kernels_}, {first, std::min(groups.end, first + rows)});
    }
  }
}

TensorView CpuBackend::in_order(TensorView x, const Weight& weight) {
  const std::vector<int32_t>* order = column_order(weight);
  if (order == nullptr) return x;
  const TensorView ordered =
      TensorView::contiguous(grown(ordered_, x.dim(0) * x.dim(1)), DType::F32, {x.dim(0), x.dim(1)});
  for_rows(x.dim(0), x.dim(1),
           [&](int64_t i) { order_columns(ordered.at<float>(i), x.at<float>(i), *order); });
  return ordered;
}

void CpuBackend::matmul(TensorView out, TensorView x, const Weight& weight) {
  check_gemm(out, x, weight);
  if (x.dim(0) == 0) return;
  if (!weight.runs.empty())
    return for_runs(out, weight, [&](TensorView rows, const Weight& run) { matmul(rows, x, run); });
  if (observer_ != nullptr) observer_->saw(weight, x);
  x = in_order(x, weight);
  const Activations activations = prepare_activations(x, weight);
  const int64_t groups = row_groups(weight);
  const auto task = [&](int64_t begin, int64_t end) {
    gemm_groups(out, x, weight, activations, {begin, end});
  };
  if ((activations.bf16.words != nullptr || activations.tiles != nullptr) && x.dim(0) > 2 * kTileTokens) {
    // Each task reads all activations, which with tiles takes as long as the multiplications where rows are few.
    constexpr int64_t kEnough = 16;
    const int64_t turns = groups >= kEnough * pool_.threads() ? 2 : 1;
    const int64_t tasks = std::min(groups, turns * pool_.threads());
    pool_.run(static_cast<int>(tasks), [&](int i) { task(groups * i / tasks, groups * (i + 1) / tasks); });
    return;
  }
  const int64_t grain = kSmallestTask / std::max<int64_t>(1, kRowGroup * weight.cols * x.dim(0)) + 1;
  pool_.for_ranges(groups, grain, task);
}

void CpuBackend::matmul_heads(TensorView out, TensorView x, std::span<const Weight> weights) {
  const auto heads = static_cast<int64_t>(weights.size());
  SLUICE_CHECK_EQ(x.dim(1), heads);
  SLUICE_CHECK_EQ(out.dim(1), heads);
  if (heads == 0) return;
  if (observer_ != nullptr)
    for (int64_t i = 0; i < heads; ++i) observer_->saw(weights[static_cast<size_t>(i)], head_of(x, i));
  // All heads' activations lie one after the other, token by token within a head.
  const int64_t per_row = blocks_per_row(weights[0].cols);
  const int64_t per_head = x.dim(0) * per_row;
  ActivationBlock* blocks = grown(forms_.blocks, heads * per_head);
  SplitBlock* split = grown(forms_.split, heads * per_head);
  PanelActivations* panels = grown(forms_.panels, heads * per_head);
  const int64_t words = tile_words(x.dim(0), weights[0]);
  uint16_t* bf16 = grown(forms_.bf16, heads * words);
  float* columns = grown(forms_.columns, heads * x.dim(0) * weights[0].cols);
  pool_.run(static_cast<int>(heads), [&](int index) {  // one region for all heads: each is small
    const Weight& weight = weights[static_cast<size_t>(index)];
    const TensorView head_x = head_of(x, index);
    check_gemm(head_of(out, index), head_x, weight);
    SLUICE_CHECK(!is_ordered(weight));
    const Needs needs(weight, {kernels_, panel_kernels_});
    Activations own{
        blocks + index * per_head, split + index * per_head, panels + index * per_head, nullptr, {}, nullptr};
    if (needs.columns) {
      float* to = columns + index * x.dim(0) * weight.cols;
      for_column_fills(head_x, *panel_kernels_.columns, to, {0, weight.cols}, panel_kernels_.columns->fill);
      own.columns = to;
    }
    if (needs.words) {
      own.bf16 = {bf16 + index * words};
      for (int64_t tile = 0; tile < TokenTiles::count(x.dim(0)); ++tile)
        panel_kernels_.words->fill(tile_fill(head_x, own.bf16, tile, 0, per_row));
    }
    for (int64_t i = 0; i < x.dim(0); ++i) {
      const int64_t at = index * per_head + i * per_row;
      if (needs.blocks) kernels_.quantize(blocks + at, head_x.at<float>(i), per_row);
      if (needs.split) kernels_.split(split + at, head_x.at<float>(i), weight.cols);
      if (needs.panels) panel_kernels_.quantize(panels + at, head_x.at<float>(i), per_row);
    }
    gemm_groups(head_of(out, index), head_x, weight, own, {0, row_groups(weight)});
  });
}

}  // namespace sluice::kernels::cpu

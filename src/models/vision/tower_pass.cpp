#include "models/vision/tower_pass.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace sluice::models {

namespace {

// Windows are sequences with a block each, whose tokens all see the last. The tokens [begin, end) of the pass, and the
// windows that they are of.
struct WindowBatch {
  std::vector<int32_t> begins{0}, places, last, blocks;
  std::vector<kernels::RaggedBatch::BlockTable> tables;

  WindowBatch(const std::vector<int32_t>& ends, int64_t begin, int64_t end) {
    int32_t first = 0;
    for (size_t i = 0; i < ends.size(); first = ends[i++]) {
      const auto from = static_cast<int32_t>(std::max<int64_t>(first, begin));
      const auto to = static_cast<int32_t>(std::min<int64_t>(ends[i], end));
      if (from >= to) continue;
      for (int32_t token = from; token < to; ++token) places.push_back(token - first);
      last.insert(last.end(), static_cast<size_t>(to - from), ends[i] - first - 1);
      blocks.push_back(static_cast<int32_t>(i));
      begins.push_back(begins.back() + to - from);
    }
    tables = {{blocks, 1}};
  }
  kernels::RaggedBatch view() const {
    return {.query_begin = begins, .positions = places, .tables = tables, .rope_lengths = {}, .seen = last};
  }
};

int64_t longest_window(const std::vector<int32_t>& ends) {
  int32_t longest = 0, first = 0;
  for (const int32_t end : ends) longest = std::max(longest, end - std::exchange(first, end));
  return longest;
}

}  // namespace

const std::vector<int32_t>& VisionTower::windows_of(const Pass& pass) const {
  const auto& full = spec_.full_layers;
  return std::find(full.begin(), full.end(), static_cast<int>(pass.layer)) != full.end() ? pass.whole
                                                                                         : pass.windows;
}

std::shared_ptr<VisionTower::Pass> VisionTower::begin(std::span<const Tile> tiles) {
  auto pass = std::make_shared<Pass>();
  pass->begins = {0};
  const int64_t parts = 1 + static_cast<int64_t>(spec_.deep.size());
  for (const Tile& tile : tiles) {
    const int rows = tile.height / spec_.patch, columns = tile.width / spec_.patch;
    SLUICE_CHECK(rows > 0 && columns > 0 && rows % spec_.merge == 0 && columns % spec_.merge == 0);
    const Layout& layout = pass->tiles.emplace_back(lay_out(rows, columns));
    const int64_t begin = pass->tokens();
    for (const int32_t end : layout.ends) pass->windows.push_back(static_cast<int32_t>(begin) + end);
    pass->begins.push_back(begin + layout.tokens());
    pass->whole.push_back(static_cast<int32_t>(pass->tokens()));
    pass->out.push_back(buffer(static_cast<int64_t>(layout.reading.size()), parts * spec_.output_dim));
  }
  const int64_t n = pass->tokens();
  pass->x = buffer(n, spec_.dim);
  pass->qkv = buffer(n, int64_t{3} * spec_.dim);
  std::vector<float> turns;
  for (size_t i = 0; i < tiles.size(); ++i) {
    embed_patches(tiles[i], pass->tiles[i], pass->x.view.rows(pass->begins[i], pass->begins[i + 1]));
    if (spec_.rope.theta > 0) add_angles(pass->tiles[i], turns);
  }
  if (spec_.input_norm) norm(pass->x.view, pass->x.view, weights_.input_norm);
  if (spec_.rope.theta > 0)
    pass->angles = backend_.upload(
        TensorView::contiguous(turns.data(), DType::F32, {n, spec_.dim / spec_.heads / 2, 2}));
  return pass;
}

// [tokens, heads, head dim] of queries, keys or values.
TensorView VisionTower::heads_of(const Pass& pass, int64_t part) const {
  return pass.qkv.view.columns_as_heads(part * spec_.dim, spec_.heads, spec_.dim / spec_.heads);
}

void VisionTower::make_keys(Pass& pass, int64_t begin, int64_t end) {
  const TowerLayer& layer = weights_.layers[pass.layer];
  const kernels::Memory normed = buffer(end - begin, spec_.dim);
  const TensorView qkv = pass.qkv.view.rows(begin, end);
  norm(normed.view, pass.x.view.rows(begin, end), layer.attention_norm);
  backend_.matmul(qkv, normed.view, layer.qkv);
  if (layer.q_norm.empty()) return;
  const TensorView q = qkv.columns(0, spec_.dim), k = qkv.columns(spec_.dim, 2 * spec_.dim);
  backend_.rms_norm(q, q, layer.q_norm, spec_.norm_eps);
  backend_.rms_norm(k, k, layer.k_norm, spec_.norm_eps);
}

void VisionTower::keep_keys(Pass& pass) {
  const std::vector<int32_t>& ends = windows_of(pass);
  const WindowBatch all(ends, 0, pass.tokens());
  const std::array<int64_t, 4> shape{static_cast<int64_t>(ends.size()), longest_window(ends), spec_.heads,
                                     spec_.dim / spec_.heads};
  pass.keys = backend_.allocate_kv(backend_.activation_type(), shape);
  pass.values = backend_.allocate_kv(backend_.activation_type(), shape);
  const kernels::RaggedBatch batch = all.view();
  backend_.begin(batch);
  if (!pass.angles.view.empty()) {
    backend_.rope(heads_of(pass, 0), pass.angles.view, RopeStyle::NeoX);
    backend_.rope(heads_of(pass, 1), pass.angles.view, RopeStyle::NeoX);
  }
  backend_.write_kv({.k = pass.keys.view, .v = pass.values.view, .k_scales = {}, .v_scales = {}, .table = 0},
                    heads_of(pass, 1), heads_of(pass, 2), batch);
}

// out: [end - begin, dim].
void VisionTower::attend(const Pass& pass, TensorView out, int64_t begin, int64_t end) {
  const int64_t head_dim = spec_.dim / spec_.heads;
  const WindowBatch some(windows_of(pass), begin, end);
  const kernels::RaggedBatch batch = some.view();
  const kernels::AttentionShape heads{.heads = spec_.heads,
                                      .kv_heads = spec_.heads,
                                      .key_dim = static_cast<int>(head_dim),
                                      .value_dim = static_cast<int>(head_dim),
                                      .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                                      .sinks = {},
                                      .alibi = {}};
  const TensorView queries = pass.qkv.view.rows(begin, end).columns_as_heads(0, spec_.heads, head_dim);
  backend_.begin(batch);
  backend_.attend(out.columns_as_heads(0, spec_.heads, head_dim), queries,
                  {.k = pass.keys.view, .v = pass.values.view, .k_scales = {}, .v_scales = {}, .table = 0},
                  batch, heads);
}

void VisionTower::run_rows(Pass& pass, int64_t begin, int64_t end) {
  const TowerLayer& layer = weights_.layers[pass.layer];
  const int64_t n = end - begin;
  const TensorView x = pass.x.view.rows(begin, end);
  const kernels::Memory normed = buffer(n, spec_.dim), branch = buffer(n, spec_.dim),
                        inner = buffer(n, spec_.inner);
  attend(pass, normed.view, begin, end);
  backend_.matmul(branch.view, normed.view, layer.out);
  backend_.add(x, x, branch.view);
  norm(normed.view, x, layer.ffn_norm);
  if (spec_.gated) {
    const kernels::Memory wide = buffer(n, int64_t{2} * spec_.inner);
    backend_.matmul_gated(inner.view, wide.view, normed.view, layer.up, spec_.activation);
  } else {
    backend_.matmul(inner.view, normed.view, layer.up);
    if (spec_.activation_scale != 1.0f) backend_.scale(inner.view, spec_.activation_scale);
    backend_.activate(inner.view, inner.view, spec_.activation);
    if (spec_.activation_scale != 1.0f) backend_.scale(inner.view, 1.0f / spec_.activation_scale);
  }
  backend_.matmul(branch.view, inner.view, layer.down);
  backend_.add(x, x, branch.view);
}

void VisionTower::put_part(Pass& pass, int64_t part, const Projector& steps,
                           const std::vector<ProjectorWeights>& weights) {
  const int64_t dim = spec_.output_dim;
  for (size_t i = 0; i < pass.tiles.size(); ++i) {
    const kernels::Memory made = project(steps, weights, pass.patches(i));
    backend_.copy(pass.out[i].view.columns(part * dim, (part + 1) * dim), made.view);
  }
}

bool VisionTower::advance(Pass& pass, int64_t tokens) {
  if (pass.layer == weights_.layers.size()) return true;
  const int64_t begin = pass.done, end = std::min(pass.tokens(), begin + std::max<int64_t>(1, tokens));
  pass.has_keys ? run_rows(pass, begin, end) : make_keys(pass, begin, end);
  pass.done = end;
  if (end < pass.tokens()) return false;
  pass.done = 0;
  if (!pass.has_keys) keep_keys(pass);
  pass.has_keys = !pass.has_keys;
  if (pass.has_keys) return false;
  for (size_t d = 0; d < spec_.deep.size(); ++d)
    if (spec_.deep[d].layer == static_cast<int>(pass.layer))
      put_part(pass, static_cast<int64_t>(d) + 1, spec_.deep[d].projector, weights_.deep[d]);
  return ++pass.layer == weights_.layers.size();
}

std::vector<kernels::Memory> VisionTower::finish(Pass& pass) {
  if (spec_.output_norm) norm(pass.x.view, pass.x.view, weights_.output_norm);
  put_part(pass, 0, spec_.projector, weights_.projector);
  if (spec_.window == 0) return std::move(pass.out);
  for (size_t i = 0; i < pass.tiles.size(); ++i) {
    kernels::Memory out = buffer(pass.out[i].view.dim(0), pass.out[i].view.dim(1));
    backend_.gather_rows(out.view, pass.out[i].view, pass.tiles[i].reading);
    pass.out[i] = std::move(out);
  }
  return std::move(pass.out);
}

std::vector<kernels::Memory> VisionTower::encode(std::span<const Tile> tiles) {
  const std::shared_ptr<Pass> pass = begin(tiles);
  while (!advance(*pass, pass->tokens())) {
  }
  return finish(*pass);
}

}  // namespace sluice::models

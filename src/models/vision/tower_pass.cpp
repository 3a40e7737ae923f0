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

bool VisionTower::sees_whole_tiles(const Pass& pass) const {
  const auto& full = spec_.full_layers;
  return std::find(full.begin(), full.end(), static_cast<int>(pass.layer)) != full.end();
}

const std::vector<int32_t>& VisionTower::windows_of(const Pass& pass) const {
  return sees_whole_tiles(pass) ? pass.whole : pass.windows;
}

std::shared_ptr<VisionTower::Pass> VisionTower::begin(std::span<const Tile> tiles) {
  auto pass = std::make_shared<Pass>();
  pass->begins = {0};
  pass->sources.assign(tiles.begin(), tiles.end());
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
  pass->x = buffer(pass->tokens(), spec_.dim);
  pass->qkv = buffer(pass->tokens(), int64_t{3} * spec_.dim);
  return pass;
}

void VisionTower::embed(Pass& pass, int64_t begin, int64_t end) {
  for (size_t i = 0; i < pass.tiles.size(); ++i) {
    const int64_t from = std::max(begin, pass.begins[i]), to = std::min(end, pass.begins[i + 1]);
    if (from >= to) continue;
    const int64_t first = from - pass.begins[i], last = to - pass.begins[i];
    embed_patches(pass.sources[i], pass.tiles[i], pass.x.view.rows(from, to), first, last);
    if (spec_.rope.theta > 0) add_angles(pass.tiles[i], first, last, pass.turns);
  }
  const TensorView x = pass.x.view.rows(begin, end);
  if (spec_.input_norm) norm(x, x, weights_.input_norm);
  if (end < pass.tokens() || pass.turns.empty()) return;
  pass.angles = backend_.upload(
      TensorView::contiguous(pass.turns.data(), DType::F32, {end, spec_.dim / spec_.heads / 2, 2}));
}

// Those of the layer before are not needed any more.
void VisionTower::make_room_for_keys(Pass& pass) {
  const std::vector<int32_t>& ends = windows_of(pass);
  const std::array<int64_t, 4> shape{static_cast<int64_t>(ends.size()), longest_window(ends), spec_.heads,
                                     spec_.dim / spec_.heads};
  const TensorView& now = pass.keys.view;
  if (!now.empty() && now.dim(0) == shape[0] && now.dim(1) == shape[1]) return;
  pass.keys = backend_.allocate_kv(backend_.activation_type(), shape);
  pass.values = backend_.allocate_kv(backend_.activation_type(), shape);
}

void VisionTower::make_keys(Pass& pass, int64_t begin, int64_t end) {
  const TowerLayer& layer = weights_.layers[pass.layer];
  const kernels::Memory normed = buffer(end - begin, spec_.dim);
  const TensorView qkv = pass.qkv.view.rows(begin, end);
  norm(normed.view, pass.x.view.rows(begin, end), layer.attention_norm);
  backend_.matmul(qkv, normed.view, layer.qkv);
  if (!layer.q_norm.empty()) {
    const TensorView q = qkv.columns(0, spec_.dim), k = qkv.columns(spec_.dim, 2 * spec_.dim);
    backend_.rms_norm(q, q, layer.q_norm, spec_.norm_eps);
    backend_.rms_norm(k, k, layer.k_norm, spec_.norm_eps);
  }
  if (begin == 0) make_room_for_keys(pass);
  keep_keys(pass, begin, end);
}

void VisionTower::keep_keys(Pass& pass, int64_t begin, int64_t end) {
  const WindowBatch some(windows_of(pass), begin, end);
  const kernels::RaggedBatch batch = some.view();
  // [tokens, heads, head dim] of queries, keys or values.
  const auto heads = [&](int64_t part) {
    return pass.qkv.view.rows(begin, end)
        .columns_as_heads(part * spec_.dim, spec_.heads, spec_.dim / spec_.heads);
  };
  backend_.begin(batch);
  if (!pass.angles.view.empty()) {
    const TensorView angles = pass.angles.view.rows(begin, end);
    backend_.rope(heads(0), angles, RopeStyle::NeoX);
    backend_.rope(heads(1), angles, RopeStyle::NeoX);
  }
  backend_.write_kv({.k = pass.keys.view, .v = pass.values.view, .k_scales = {}, .v_scales = {}, .table = 0},
                    heads(1), heads(2), batch);
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

// [begin, end): embeddings of the pass.
void VisionTower::put_embeddings(Pass& pass, int64_t begin, int64_t end) {
  const bool is_last = pass.stage == Pass::Stage::Project;
  const Projector& steps = is_last ? spec_.projector : spec_.deep[pass.deep].projector;
  const std::vector<ProjectorWeights>& weights = is_last ? weights_.projector : weights_.deep[pass.deep];
  const int64_t part = is_last ? 0 : static_cast<int64_t>(pass.deep) + 1, dim = spec_.output_dim,
                merged = int64_t{spec_.merge} * spec_.merge;
  int64_t before = 0;  // embeddings of earlier tiles
  for (size_t i = 0; i < pass.tiles.size(); ++i) {
    const auto count = static_cast<int64_t>(pass.tiles[i].reading.size());
    const int64_t from = std::max<int64_t>(0, begin - before), to = std::min(count, end - before);
    before += count;
    if (from >= to) continue;
    const int64_t patch = pass.begins[i] + pass.tiles[i].first;
    const TensorView x = pass.x.view.rows(patch + from * merged, patch + to * merged);
    if (is_last && spec_.output_norm) norm(x, x, weights_.output_norm);
    const kernels::Memory made = project(steps, weights, x);
    backend_.copy(pass.out[i].view.rows(from, to).columns(part * dim, (part + 1) * dim), made.view);
  }
}

VisionTower::Part VisionTower::next_part(const Pass& pass) const {
  const int64_t left = pass.tokens() - pass.done;
  switch (pass.stage) {
    case Pass::Stage::Embed:
      return {PartKind::Embed, left};
    case Pass::Stage::Keys:
      return {PartKind::Keys, left};
    case Pass::Stage::Rows:
      return {sees_whole_tiles(pass) ? PartKind::WholeRows : PartKind::WindowedRows, left};
    default:
      return {PartKind::Project, (pass.embeddings() - pass.done) * spec_.merge * spec_.merge};
  }
}

void VisionTower::run_part(Pass& pass, int64_t begin, int64_t end) {
  switch (pass.stage) {
    case Pass::Stage::Embed:
      return embed(pass, begin, end);
    case Pass::Stage::Keys:
      return make_keys(pass, begin, end);
    case Pass::Stage::Rows:
      return run_rows(pass, begin, end);
    default:
      return put_embeddings(pass, begin, end);
  }
}

// False: there is none.
bool VisionTower::begin_next_stage(Pass& pass) {
  using Stage = Pass::Stage;
  const auto is_due = [&] { return spec_.deep[pass.deep].layer == static_cast<int>(pass.layer); };
  pass.done = 0;
  if (pass.stage == Stage::Project) return false;
  if (pass.stage == Stage::Keys) {
    pass.stage = Stage::Rows;
    return true;
  }
  if (pass.stage != Stage::Embed) {
    pass.deep = pass.stage == Stage::Deep ? pass.deep + 1 : 0;
    while (pass.deep < spec_.deep.size() && !is_due()) ++pass.deep;
    pass.stage = Stage::Deep;
    if (pass.deep < spec_.deep.size()) return true;
    ++pass.layer;
  }
  pass.stage = pass.layer < weights_.layers.size() ? Stage::Keys : Stage::Project;
  return true;
}

bool VisionTower::advance(Pass& pass, int64_t tokens) {
  const bool embeds = pass.stage == Pass::Stage::Deep || pass.stage == Pass::Stage::Project;
  const int64_t all = embeds ? pass.embeddings() : pass.tokens();
  const int64_t part = embeds ? tokens / (int64_t{spec_.merge} * spec_.merge) : tokens;
  const int64_t begin = pass.done, end = std::min(all, begin + std::max<int64_t>(1, part));
  run_part(pass, begin, end);
  pass.done = end;
  return end == all && !begin_next_stage(pass);
}

std::vector<kernels::Memory> VisionTower::finish(Pass& pass) {
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

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "models/vision/vision.h"

namespace sluice::models {

// Patches in the order in which they are computed: those that become one embedding are neighbours, and so are those of a
// window. Embeddings then are in the order of their windows.
struct VisionTower::Layout {
  int rows = 0, columns = 0;
  std::vector<Place> places;     // behind the class token, where there is one
  std::vector<int32_t> ends;     // of the windows, in tokens; one where there are none
  std::vector<int32_t> all;      // one window of all tokens
  std::vector<int32_t> reading;  // embeddings in reading order
  int64_t first = 0;             // token of the first patch
  int64_t tokens() const { return first + static_cast<int64_t>(places.size()); }
};

VisionTower::Layout VisionTower::lay_out(int rows, int columns) const {
  Layout out{.rows = rows, .columns = columns, .places = {}, .ends = {}, .all = {}, .reading = {}};
  out.first = spec_.class_token ? 1 : 0;
  const int merge = spec_.merge, down = rows / merge, across = columns / merge;
  const int side = spec_.window > 0 ? spec_.window : std::max(down, across);
  out.reading.resize(static_cast<size_t>(down) * static_cast<size_t>(across));
  int32_t cells = 0;
  const auto add_cell = [&](int y, int x) {
    out.reading[static_cast<size_t>(y * across + x)] = cells++;
    for (int i = 0; i < merge * merge; ++i)
      out.places.push_back({y * merge + i / merge, x * merge + i % merge});
  };
  for (int top = 0; top < down; top += side) {
    for (int left = 0; left < across; left += side) {
      for (int y = top; y < std::min(down, top + side); ++y)
        for (int x = left; x < std::min(across, left + side); ++x) add_cell(y, x);
      out.ends.push_back(static_cast<int32_t>(out.tokens()));
    }
  }
  out.all = {static_cast<int32_t>(out.tokens())};
  return out;
}

// Host values as activations.
kernels::Memory VisionTower::put(const std::vector<float>& values, int64_t rows, int64_t cols) const {
  const TensorView host = TensorView::contiguous(const_cast<float*>(values.data()), DType::F32, {rows, cols});
  if (backend_.activation_type() == DType::F32 && backend_.async_device() == nullptr)
    return backend_.upload(host);
  kernels::Weight table{.parts = {host}, .rows = rows, .cols = cols, .table = true};
  table = backend_.prepare(std::move(table));
  std::vector<int32_t> ids(static_cast<size_t>(rows));
  std::iota(ids.begin(), ids.end(), 0);
  kernels::Memory out = buffer(rows, cols);
  backend_.embed(out.view, table, ids);
  // The table goes with this call: the device must have read it.
  std::vector<float> last(static_cast<size_t>(cols));
  backend_.download(TensorView::contiguous(last.data(), DType::F32, {1, cols}),
                    out.view.rows(rows - 1, rows));
  return out;
}

// Columns are channel, row, column, as convolutions store their kernels.
kernels::Memory VisionTower::patches_of(const uint8_t* rgb, int width, const Layout& layout) const {
  const int size = spec_.patch;
  std::vector<float> values;
  values.reserve(layout.places.size() * static_cast<size_t>(3 * size * size));
  for (const Place& place : layout.places) {
    for (size_t channel = 0; channel < 3; ++channel) {
      for (int i = 0; i < size * size; ++i) {
        const size_t pixel = static_cast<size_t>(place.row * size + i / size) * static_cast<size_t>(width) +
                             static_cast<size_t>(place.column * size + i % size);
        const float value = static_cast<float>(rgb[3 * pixel + channel]) / 255.0f;
        values.push_back((value - spec_.mean[channel]) / spec_.deviation[channel]);
      }
    }
  }
  return put(values, static_cast<int64_t>(layout.places.size()), int64_t{3} * size * size);
}

// [tokens, dim], with the class token in its row.
kernels::Memory VisionTower::positions_of(const Layout& layout) const {
  const auto dim = static_cast<size_t>(spec_.dim);
  std::vector<float> out(static_cast<size_t>(layout.tokens()) * dim);
  const size_t first = spec_.class_token ? 1 : 0;
  if (spec_.class_token)
    for (size_t i = 0; i < dim; ++i)
      out[i] = weights_.class_token[i] + (weights_.positions.empty() ? 0.0f : weights_.positions[i]);
  const auto add = [&](float* to, int y, int x, float share) {
    const size_t row = first + static_cast<size_t>(y * spec_.grid + x);
    for (size_t i = 0; i < dim; ++i) to[i] += share * weights_.positions[row * dim + i];
  };
  for (size_t p = 0; p < layout.places.size() && spec_.positions != TablePositions::None; ++p) {
    const Place& place = layout.places[p];
    float* to = out.data() + (p + first) * dim;
    if (spec_.positions == TablePositions::Nearest) {
      add(to, place.row * spec_.grid / layout.rows, place.column * spec_.grid / layout.columns, 1.0f);
      continue;
    }
    const auto at = [&](int index, int size) {
      return size > 1 ? static_cast<float>(index) * static_cast<float>(spec_.grid - 1) /
                            static_cast<float>(size - 1)
                      : 0.0f;
    };
    const float y = at(place.row, layout.rows), x = at(place.column, layout.columns);
    const int top = static_cast<int>(y), left = static_cast<int>(x);
    const int bottom = std::min(top + 1, spec_.grid - 1), right = std::min(left + 1, spec_.grid - 1);
    const float down = y - static_cast<float>(top), across = x - static_cast<float>(left);
    add(to, top, left, (1 - down) * (1 - across));
    add(to, top, right, (1 - down) * across);
    add(to, bottom, left, down * (1 - across));
    add(to, bottom, right, down * across);
  }
  return put(out, layout.tokens(), spec_.dim);
}

// [tokens, pairs, 2]: rows turn the first half of the pairs, columns the second.
std::vector<float> VisionTower::angles_of(const Layout& layout) const {
  const int head = spec_.dim / spec_.heads, quarter = head / 4;
  std::vector<float> out;
  for (int64_t i = 0; i < layout.first * 2 * quarter; ++i) out.insert(out.end(), {1.0f, 0.0f});
  for (const Place& place : layout.places) {
    for (int pair = 0; pair < 2 * quarter; ++pair) {
      const bool by_row = pair < quarter;
      const int i = pair % quarter;
      const float exponent =
          spec_.rope.alternating
              ? static_cast<float>(2 * (2 * i + (by_row ? 0 : 1))) / static_cast<float>(head)
              : static_cast<float>(2 * i) / static_cast<float>(head / 2);
      const float angle = static_cast<float>(by_row ? place.row : place.column) *
                          (1.0f / std::pow(spec_.rope.theta, exponent));
      out.insert(out.end(), {std::cos(angle), std::sin(angle)});
    }
  }
  return out;
}

void VisionTower::norm(TensorView out, TensorView x, const TowerNorm& weights) {
  if (spec_.norm == NormKind::Rms) {
    backend_.rms_norm(out, x, weights.gain, spec_.norm_eps);
  } else {
    backend_.layer_norm(out, x, weights.gain, weights.bias, spec_.norm_eps);
  }
}

// A window is a sequence with a block of its own, whose tokens all see its last.
void VisionTower::attend(size_t index, const Layout& layout, TensorView angles, TensorView out,
                         TensorView normed) {
  const TowerLayer& layer = weights_.layers[index];
  const int64_t n = normed.dim(0), head_dim = spec_.dim / spec_.heads;
  const bool full = std::find(spec_.full_layers.begin(), spec_.full_layers.end(), static_cast<int>(index)) !=
                    spec_.full_layers.end();
  const std::vector<int32_t>& ends = full ? layout.all : layout.ends;
  std::vector<int32_t> begins{0}, places, last, blocks;
  int32_t longest = 0;
  for (const int32_t end : ends) {
    const int32_t length = end - begins.back();
    longest = std::max(longest, length);
    for (int32_t i = 0; i < length; ++i) places.push_back(i);
    last.insert(last.end(), static_cast<size_t>(length), length - 1);
    blocks.push_back(static_cast<int32_t>(blocks.size()));
    begins.push_back(end);
  }
  const std::vector<kernels::RaggedBatch::BlockTable> tables{{blocks, 1}};
  const kernels::RaggedBatch batch{
      .query_begin = begins, .positions = places, .tables = tables, .rope_lengths = {}, .seen = last};
  const kernels::Memory qkv = buffer(n, int64_t{3} * spec_.dim), attended = buffer(n, spec_.dim);
  backend_.matmul(qkv.view, normed, layer.qkv);
  if (!layer.q_norm.empty()) {
    const TensorView q = qkv.view.columns(0, spec_.dim), k = qkv.view.columns(spec_.dim, 2 * spec_.dim);
    backend_.rms_norm(q, q, layer.q_norm, spec_.norm_eps);
    backend_.rms_norm(k, k, layer.k_norm, spec_.norm_eps);
  }
  const std::array<int64_t, 4> shape{static_cast<int64_t>(ends.size()), longest, spec_.heads, head_dim};
  const kernels::Memory keys = backend_.allocate_kv(backend_.activation_type(), shape);
  const kernels::Memory values = backend_.allocate_kv(backend_.activation_type(), shape);
  const kernels::PagedKv kv{.k = keys.view, .v = values.view, .k_scales = {}, .v_scales = {}, .table = 0};
  const auto heads_at = [&](int64_t part) {
    return qkv.view.columns_as_heads(part * spec_.dim, spec_.heads, head_dim);
  };
  backend_.begin(batch);
  if (!angles.empty()) {
    backend_.rope(heads_at(0), angles, RopeStyle::NeoX);
    backend_.rope(heads_at(1), angles, RopeStyle::NeoX);
  }
  backend_.write_kv(kv, heads_at(1), heads_at(2), batch);
  const kernels::AttentionShape heads{.heads = spec_.heads,
                                      .kv_heads = spec_.heads,
                                      .key_dim = static_cast<int>(head_dim),
                                      .value_dim = static_cast<int>(head_dim),
                                      .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                                      .sinks = {},
                                      .alibi = {}};
  backend_.attend(attended.view.columns_as_heads(0, spec_.heads, head_dim), heads_at(0), kv, batch, heads);
  backend_.matmul(out, attended.view, layer.out);
}

void VisionTower::run_layer(size_t index, const Layout& layout, TensorView angles, TensorView x) {
  const TowerLayer& layer = weights_.layers[index];
  const int64_t n = x.dim(0);
  const kernels::Memory normed = buffer(n, spec_.dim), branch = buffer(n, spec_.dim),
                        inner = buffer(n, spec_.inner);
  norm(normed.view, x, layer.attention_norm);
  attend(index, layout, angles, branch.view, normed.view);
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

kernels::Memory VisionTower::project(const Projector& steps, const std::vector<ProjectorWeights>& weights,
                                     TensorView x) {
  const int64_t neighbours = int64_t{spec_.merge} * spec_.merge;
  kernels::Memory at = buffer(x.dim(0), x.dim(1));
  backend_.copy(at.view, x);
  const auto merge = [&] {
    const int64_t rows = at.view.dim(0) / neighbours, cols = at.view.dim(1) * neighbours;
    at.view = TensorView::contiguous(at.view.data, at.view.dtype, {rows, cols}, at.view.device);
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    if (std::holds_alternative<MergePatches>(steps[i])) {
      merge();
    } else if (std::holds_alternative<PoolPatches>(steps[i])) {
      const int64_t width = at.view.dim(1);
      merge();
      kernels::Memory sum = buffer(at.view.dim(0), width);
      for (int64_t part = 0; part < neighbours; ++part)
        backend_.add(sum.view, sum.view, at.view.columns(part * width, (part + 1) * width));
      backend_.scale(sum.view, 1.0f / static_cast<float>(neighbours));
      at = std::move(sum);
    } else if (const auto* how = std::get_if<ProjectorNorm>(&steps[i])) {
      const TowerNorm& norm = weights[i].norm;
      if (how->kind == NormKind::Rms) {
        backend_.rms_norm(at.view, at.view, norm.gain, how->eps);
      } else {
        backend_.layer_norm(at.view, at.view, norm.gain, norm.bias, how->eps);
      }
    } else {
      kernels::Memory next = buffer(at.view.dim(0), weights[i].matrix.rows);
      backend_.matmul(next.view, at.view, weights[i].matrix);
      if (std::get<ProjectorMatrix>(steps[i]).activated)
        backend_.activate(next.view, next.view, spec_.projector_activation);
      at = std::move(next);
    }
  }
  return at;
}

kernels::Memory VisionTower::encode(const uint8_t* rgb, int width, int height) {
  const int rows = height / spec_.patch, columns = width / spec_.patch;
  SLUICE_CHECK(rows > 0 && columns > 0 && rows % spec_.merge == 0 && columns % spec_.merge == 0);
  const Layout layout = lay_out(rows, columns);
  const int64_t n = layout.tokens(), first = layout.first;
  const kernels::Memory patches = patches_of(rgb, width, layout), stream = buffer(n, spec_.dim);
  const TensorView x = stream.view;
  backend_.matmul(x.rows(first, n), patches.view, weights_.patches);
  if (spec_.class_token || spec_.positions != TablePositions::None) {
    const kernels::Memory positions = positions_of(layout);
    backend_.add(x, x, positions.view);
  }
  if (spec_.input_norm) norm(x, x, weights_.input_norm);
  kernels::Memory angles;
  if (spec_.rope.theta > 0) {
    std::vector<float> values = angles_of(layout);
    angles = backend_.upload(
        TensorView::contiguous(values.data(), DType::F32, {n, spec_.dim / spec_.heads / 2, 2}));
  }
  const int64_t dim = spec_.output_dim, parts = 1 + static_cast<int64_t>(spec_.deep.size());
  const int64_t tokens = static_cast<int64_t>(layout.reading.size());
  const kernels::Memory all = buffer(tokens, parts * dim);
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    run_layer(i, layout, angles.view, x);
    for (size_t d = 0; d < spec_.deep.size(); ++d) {
      if (spec_.deep[d].layer != static_cast<int>(i)) continue;
      const kernels::Memory made = project(spec_.deep[d].projector, weights_.deep[d], x.rows(first, n));
      const auto part = static_cast<int64_t>(d) + 1;
      backend_.copy(all.view.columns(part * dim, (part + 1) * dim), made.view);
    }
  }
  if (spec_.output_norm) norm(x, x, weights_.output_norm);
  const kernels::Memory made = project(spec_.projector, weights_.projector, x.rows(first, n));
  backend_.copy(all.view.columns(0, dim), made.view);
  if (spec_.window == 0) return all;
  kernels::Memory out = buffer(tokens, parts * dim);
  backend_.gather_rows(out.view, all.view, layout.reading);
  return out;
}

}  // namespace sluice::models

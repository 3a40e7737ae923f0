#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/vision/tower_pass.h"

namespace sluice::models {

VisionTower::Layout VisionTower::lay_out(int rows, int columns) const {
  Layout out{.rows = rows, .columns = columns, .places = {}, .ends = {}, .reading = {}};
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
kernels::Memory VisionTower::patches_of(const Tile& tile, std::span<const Place> places) const {
  const int size = spec_.patch;
  std::vector<float> values;
  values.reserve(places.size() * static_cast<size_t>(3 * size * size));
  for (const Place& place : places) {
    for (size_t channel = 0; channel < 3; ++channel) {
      for (int i = 0; i < size * size; ++i) {
        const size_t pixel =
            static_cast<size_t>(place.row * size + i / size) * static_cast<size_t>(tile.width) +
            static_cast<size_t>(place.column * size + i % size);
        const float value = static_cast<float>(tile.rgb[3 * pixel + channel]) / 255.0f;
        values.push_back((value - spec_.mean[channel]) / spec_.deviation[channel]);
      }
    }
  }
  return put(values, static_cast<int64_t>(places.size()), int64_t{3} * size * size);
}

// [end - begin, dim] of the tile's tokens, with the class token in its row.
kernels::Memory VisionTower::positions_of(const Layout& layout, int64_t begin, int64_t end) const {
  const auto dim = static_cast<size_t>(spec_.dim);
  std::vector<float> out(static_cast<size_t>(end - begin) * dim);
  const size_t first = spec_.class_token ? 1 : 0;
  if (spec_.class_token && begin == 0)
    for (size_t i = 0; i < dim; ++i)
      out[i] = weights_.class_token[i] + (weights_.positions.empty() ? 0.0f : weights_.positions[i]);
  const auto add = [&](float* to, int y, int x, float share) {
    const size_t row = first + static_cast<size_t>(y * spec_.grid + x);
    for (size_t i = 0; i < dim; ++i) to[i] += share * weights_.positions[row * dim + i];
  };
  const bool has_table = spec_.positions != TablePositions::None;
  for (int64_t token = std::max(begin, layout.first); token < end && has_table; ++token) {
    const Place& place = layout.places[static_cast<size_t>(token - layout.first)];
    float* to = out.data() + static_cast<size_t>(token - begin) * dim;
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
  return put(out, end - begin, spec_.dim);
}

// [end - begin, pairs, 2] of the tile's tokens: rows turn the first half of the pairs, columns the second.
void VisionTower::add_angles(const Layout& layout, int64_t begin, int64_t end,
                             std::vector<float>& out) const {
  const int head = spec_.dim / spec_.heads, quarter = head / 4;
  for (int64_t i = begin * 2 * quarter; i < std::min(end, layout.first) * 2 * quarter; ++i)
    out.insert(out.end(), {1.0f, 0.0f});
  for (const Place& place : layout.places_of(begin, end)) {
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
}

void VisionTower::norm(TensorView out, TensorView x, const TowerNorm& weights) {
  if (spec_.norm == NormKind::Rms) {
    backend_.rms_norm(out, x, weights.gain, spec_.norm_eps);
  } else {
    backend_.layer_norm(out, x, weights.gain, weights.bias, spec_.norm_eps);
  }
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

// x: [end - begin, dim], the tile's tokens.
void VisionTower::embed_patches(const Tile& tile, const Layout& layout, TensorView x, int64_t begin,
                                int64_t end) {
  const std::span<const Place> places = layout.places_of(begin, end);
  if (!places.empty()) {
    const kernels::Memory patches = patches_of(tile, places);
    backend_.matmul(x.rows(x.dim(0) - patches.view.dim(0), x.dim(0)), patches.view, weights_.patches);
  }
  if (!spec_.class_token && spec_.positions == TablePositions::None) return;
  const kernels::Memory positions = positions_of(layout, begin, end);
  backend_.add(x, x, positions.view);
}

}  // namespace sluice::models

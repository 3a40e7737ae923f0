// The tensors of a tower, under the names of its spec.
#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "models/vision/vision.h"
#include "tensor/blocks.h"

namespace sluice::models {

namespace {

using Stored = ProjectorMatrix::Stored;

// Keeps the first problem and goes on with empty weights.
class TowerBinder {
 public:
  TowerBinder(const VisionSpec& spec, const formats::TensorStore& store, kernels::Backend& backend,
              VisionWeights& out)
      : store_(store), backend_(backend), out_(out) {
    for (const std::string_view prefix : spec.prefixes) {
      prefix_ = prefix;
      if (store.contains(in_tower(spec.names.patches) + ".weight")) return;
    }
  }

  std::string in_tower(std::string_view name) const { return prefix_ + std::string(name); }

  // Stacked [rows, cols] each, the first dimension of a stored tensor being its rows; biases where the file has any.
  kernels::Weight matrix(const std::vector<std::string>& stems, int64_t rows, int64_t cols) {
    kernels::Weight weight{.rows = rows * static_cast<int64_t>(stems.size()), .cols = cols};
    std::vector<float> bias;
    for (const std::string& stem : stems) {
      weight.parts.push_back(stored(named(stem), rows, cols));
      if (!store_.contains(stem + ".bias")) continue;
      const std::vector<float> part = floats(stem + ".bias", rows);
      bias.insert(bias.end(), part.begin(), part.end());
    }
    if (!bias.empty() && static_cast<int64_t>(bias.size()) != weight.rows)
      fail(fmt::format("'{}' has biases for some of its rows alone", stems.front()));
    return finish(std::move(weight), bias);
  }
  // From floats that were made of a stored matrix.
  kernels::Weight made(std::vector<float> values, int64_t rows, int64_t cols,
                       const std::vector<float>& bias) {
    const auto kept = std::make_shared<std::vector<float>>(std::move(values));
    kernels::Weight weight{.rows = rows, .cols = cols};
    weight.parts.push_back(TensorView::contiguous(kept->data(), DType::F32, {rows, cols}));
    weight = finish(std::move(weight), bias);
    if (kernels::reads(weight, kept->data())) out_.owners.push_back(kept);
    return weight;
  }
  // Queries, keys and values whose first two have the two numbers of a rotary pair side by side in the file.
  kernels::Weight unrotated(const std::vector<std::string>& stems, int64_t heads, int64_t dim) {
    std::vector<float> all;
    const int64_t half = dim / heads / 2;
    for (size_t i = 0; i < stems.size(); ++i) {
      const std::vector<float> rows = floats(stems[i] + ".weight", dim * dim);
      for (int64_t to = 0; to < dim; ++to) {
        const int64_t head = to / (2 * half), in_head = to % (2 * half);
        const int64_t from = i == 2 ? to : head * 2 * half + in_head % half * 2 + in_head / half;
        all.insert(all.end(), rows.begin() + from * dim, rows.begin() + (from + 1) * dim);
      }
    }
    return made(std::move(all), 3 * dim, dim, {});
  }
  // Each row, and its bias, times a number; those of the file where `scale` is empty.
  kernels::Weight scaled(const std::string& stem, const std::string& scale, int64_t rows, int64_t cols) {
    if (scale.empty()) return matrix({stem}, rows, cols);
    std::vector<float> values = floats(stem + ".weight", rows * cols);
    std::vector<float> bias;
    if (store_.contains(stem + ".bias")) bias = floats(stem + ".bias", rows);
    const std::vector<float> factors = floats(scale, rows);
    for (size_t i = 0; i < values.size(); ++i) values[i] *= factors[i / static_cast<size_t>(cols)];
    for (size_t i = 0; i < bias.size(); ++i) bias[i] *= factors[i];
    return made(std::move(values), rows, cols, bias);
  }
  // A patch of several equal frames is one patch under the sum of the frames' kernels.
  kernels::Weight patches(const VisionSpec& spec) {
    const std::string stem = in_tower(spec.names.patches);
    const int64_t pixels = int64_t{spec.patch} * spec.patch, cols = 3 * pixels;
    if (spec.frames == 1) return matrix({stem}, spec.dim, cols);
    if (store_.contains(stem + ".weight.1")) return added_frames(spec, stem, cols);
    const std::vector<float> all = floats(stem + ".weight", spec.dim * cols * spec.frames);
    std::vector<float> sums(static_cast<size_t>(spec.dim * cols));
    for (size_t i = 0; i < all.size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      sums[static_cast<size_t>(index / (pixels * spec.frames) * pixels + index % pixels)] += all[i];
    }
    std::vector<float> bias;
    if (store_.contains(stem + ".bias")) bias = floats(stem + ".bias", spec.dim);
    return made(std::move(sums), spec.dim, cols, bias);
  }
  // The same, where each frame has a tensor: NAME.weight, NAME.weight.1, ...
  kernels::Weight added_frames(const VisionSpec& spec, const std::string& stem, int64_t cols) {
    std::vector<float> sums = floats(stem + ".weight", spec.dim * cols), bias;
    for (int frame = 1; frame < spec.frames; ++frame) {
      const std::vector<float> more = floats(fmt::format("{}.weight.{}", stem, frame), spec.dim * cols);
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
    }
    if (store_.contains(stem + ".bias")) bias = floats(stem + ".bias", spec.dim);
    return made(std::move(sums), spec.dim, cols, bias);
  }
  kernels::Weight projection(const ProjectorMatrix& how, int64_t cols, int64_t neighbours) {
    const std::string stem = outside(how.stem);
    if (how.stored == Stored::Rows) return matrix({stem}, how.rows, cols);
    const std::vector<float> values = floats(named(stem), how.rows * cols);
    std::vector<float> moved(values.size()), bias;
    const int64_t channels = cols / neighbours;
    for (int64_t row = 0; row < how.rows; ++row) {
      for (int64_t col = 0; col < cols; ++col) {
        const int64_t from = how.stored == Stored::Columns
                                 ? col * how.rows + row
                                 : row * cols + col % channels * neighbours + col / channels;
        moved[static_cast<size_t>(row * cols + col)] = values[static_cast<size_t>(from)];
      }
    }
    if (store_.contains(stem + ".bias")) bias = floats(stem + ".bias", how.rows);
    return made(std::move(moved), how.rows, cols, bias);
  }
  TowerNorm norm(const std::string& stem, int64_t size, NormKind kind, bool plus_one = false) {
    std::vector<float> gain = floats(stem + ".weight", size), bias;
    for (float& value : gain) value += plus_one ? 1.0f : 0.0f;
    if (kind == NormKind::Layer) bias = floats(stem + ".bias", size);
    if (!status_.ok()) return {};
    return {upload(gain), bias.empty() ? TensorView() : upload(bias)};
  }
  TensorView gain(const std::string& name, int64_t size) {
    const std::vector<float> values = floats(name, size);
    return status_.ok() ? upload(values) : TensorView();
  }
  std::vector<float> floats(const std::string& name, int64_t size) {
    std::vector<float> out(static_cast<size_t>(size));
    const TensorView view = stored(name, 1, size);
    if (status_.ok()) dequantize_row(view.dtype, view.data, out.data(), size);
    return out;
  }
  // Of the projector, which may lie in "model.".
  std::string outside(const std::string& stem) const {
    return store_.contains(named(stem)) || store_.contains(stem + ".weight") ? stem : "model." + stem;
  }

  void fail(std::string message) {
    if (status_.ok()) status_ = Error{ErrorCode::Unsupported, std::move(message)};
  }
  const Status& status() const { return status_; }

 private:
  std::string named(const std::string& stem) const { return store_.contains(stem) ? stem : stem + ".weight"; }
  kernels::Weight finish(kernels::Weight weight, const std::vector<float>& bias) {
    if (!status_.ok()) return {};
    if (!bias.empty()) weight.bias = upload(bias);
    return backend_.prepare(std::move(weight));
  }
  TensorView stored(const std::string& name, int64_t rows, int64_t cols) {
    const Result<TensorView> found = store_.find(name);
    if (!found) {
      fail(found.error().message);
      return {};
    }
    const TensorView view = *found;
    const bool plain = view.dtype == DType::F32 || view.dtype == DType::F16 || view.dtype == DType::BF16;
    if (!plain || view.elements() != rows * cols) {
      fail(fmt::format("'{}' is {}; the tower needs [{}, {}] in F32, F16 or BF16", name, view.describe(),
                       rows, cols));
      return {};
    }
    return TensorView::contiguous(view.data, view.dtype, {rows, cols}, view.device);
  }
  TensorView upload(const std::vector<float>& values) {
    kernels::Memory memory = backend_.upload(TensorView::contiguous(
        const_cast<float*>(values.data()), DType::F32, {static_cast<int64_t>(values.size())}));
    out_.owners.push_back(memory.owner);
    return memory.view;
  }

  const formats::TensorStore& store_;
  kernels::Backend& backend_;
  VisionWeights& out_;
  std::string prefix_;
  Status status_;
};

void bind_layer(const VisionSpec& spec, int index, TowerBinder& bind, TowerLayer& to) {
  const TowerNames& names = spec.names;
  const std::string layer = bind.in_tower(fmt::format(fmt::runtime(names.layer), index));
  const auto in_layer = [&](const std::vector<std::string_view>& stems) {
    std::vector<std::string> out;
    for (const std::string_view stem : stems) out.push_back(layer + std::string(stem));
    return out;
  };
  const auto one = [&](std::string_view name) {
    return name.empty() ? std::string() : layer + std::string(name);
  };
  const int64_t dim = spec.dim, stacked = static_cast<int64_t>(names.qkv.size());
  to.attention_norm = bind.norm(one(names.attention_norm), dim, spec.norm);
  to.ffn_norm = bind.norm(one(names.ffn_norm), dim, spec.norm);
  to.qkv = spec.rotated_pairs ? bind.unrotated(in_layer(names.qkv), spec.heads, dim)
                              : bind.matrix(in_layer(names.qkv), 3 * dim / stacked, dim);
  if (!names.q_norm.empty()) {
    to.q_norm = bind.gain(one(names.q_norm), dim);
    to.k_norm = bind.gain(one(names.k_norm), dim);
  }
  to.out = bind.scaled(one(names.out), one(names.attention_scale), dim, dim);
  to.up = bind.matrix(in_layer(names.up), spec.inner, dim);
  to.down = bind.scaled(one(names.down), one(names.ffn_scale), dim, spec.inner);
}

void bind_encoder(const VisionSpec& spec, TowerBinder& bind, VisionWeights& out) {
  const TowerNames& names = spec.names;
  const int64_t dim = spec.dim, rows = int64_t{spec.grid} * spec.grid + (spec.class_token ? 1 : 0);
  out.patches = bind.patches(spec);
  if (spec.positions != TablePositions::None)
    out.positions = bind.floats(bind.in_tower(names.positions), rows * dim);
  if (spec.class_token) out.class_token = bind.floats(bind.in_tower(names.class_token), dim);
  if (spec.input_norm) out.input_norm = bind.norm(bind.in_tower(names.input_norm), dim, spec.norm);
  if (spec.output_norm) out.output_norm = bind.norm(bind.in_tower(names.output_norm), dim, spec.norm);
  for (int i = 0; i < spec.layers && bind.status().ok(); ++i)
    bind_layer(spec, i, bind, out.layers.emplace_back());
}

std::vector<ProjectorWeights> bind_projector(const VisionSpec& spec, const Projector& steps,
                                             TowerBinder& bind) {
  std::vector<ProjectorWeights> out;
  const int64_t neighbours = int64_t{spec.merge} * spec.merge;
  int64_t width = spec.dim;
  for (const ProjectorStep& step : steps) {
    ProjectorWeights& to = out.emplace_back();
    if (std::holds_alternative<MergePatches>(step)) width *= neighbours;
    if (const auto* norm = std::get_if<ProjectorNorm>(&step))
      to.norm = bind.norm(bind.outside(norm->stem), width, norm->kind, norm->plus_one);
    if (const auto* matrix = std::get_if<ProjectorMatrix>(&step)) {
      to.matrix = bind.projection(*matrix, width, neighbours);
      width = matrix->rows;
    }
  }
  if (width != spec.output_dim)
    bind.fail(fmt::format("the tower makes {} numbers; the decoder takes {}", width, spec.output_dim));
  return out;
}

}  // namespace

Result<VisionWeights> bind_vision(const VisionSpec& spec, const formats::TensorStore& store,
                                  kernels::Backend& backend) {
  VisionWeights out;
  try {
    TowerBinder bind(spec, store, backend, out);
    bind_encoder(spec, bind, out);
    out.projector = bind_projector(spec, spec.projector, bind);
    for (const DeepProjector& deep : spec.deep)
      out.deep.push_back(bind_projector(spec, deep.projector, bind));
    if (!bind.status().ok()) return bind.status().error();
  } catch (const std::exception& problem) {
    return Error{ErrorCode::Unavailable, fmt::format("cannot place the tower's weights: {}", problem.what())};
  }
  return out;
}

}  // namespace sluice::models

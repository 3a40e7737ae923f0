// How tokens are told their positions: tables of embeddings, and the frequencies of ropes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/loading/bind_parts.h"

namespace sluice::models {

namespace {

HostTensor sinusoids(int64_t positions, int64_t dim) {
  HostTensor table = HostTensor::make(DType::F32, {positions, dim});
  const int64_t half = dim / 2;
  for (int64_t i = 0; i < positions * half; ++i) {
    const int64_t position = i / half, pair = i % half;
    const double step = std::log(10000.0) / static_cast<double>(std::max<int64_t>(half - 1, 1));
    const double angle = static_cast<double>(position) * std::exp(-step * static_cast<double>(pair));
    table.view.at<float>(position)[pair] = static_cast<float>(std::sin(angle));
    table.view.at<float>(position)[half + pair] = static_cast<float>(std::cos(angle));
  }
  return table;
}

// A file may have more factors than frequencies: those of ropes that turn more of a head.
bool divide_by_factors(Binder& binder, WeightSlot slot, std::vector<float>& frequencies) {
  if (frequencies.empty() || !binder.has(slot)) return false;
  const std::optional<TensorView> stored = binder.stored(slot);
  const auto count = static_cast<int64_t>(frequencies.size());
  const std::vector<float> factors =
      binder.host_vector(slot, stored ? std::max(count, stored->elements()) : count);
  for (size_t i = 0; i < std::min(factors.size(), frequencies.size()); ++i) {
    if (!(factors[i] > 0.0f)) {
      binder.fail(fmt::format("rope factor {} is {}, must be positive", i, factors[i]));
      return false;
    }
    frequencies[i] /= factors[i];
  }
  return !factors.empty();
}

}  // namespace

Weight bind_positions(Binder& binder, const ModelSpec& spec) {
  const int64_t rows = int64_t{spec.context} + spec.position_offset;
  if (spec.positions == Positions::Learned)
    return binder.matrix(WeightSlot::PositionEmbedding, {rows, spec.dim});
  return binder.prepared({{binder.keep(sinusoids(rows, spec.dim))}, rows, spec.dim, {}, {}});
}

void apply_rope_factors(Binder& binder, ModelSpec& spec) {
  if (spec.ropes.empty()) return;
  Rope& rope = spec.ropes[0];
  if (divide_by_factors(binder, WeightSlot::RopeFactors, rope.inverse_frequency))
    rope.note += ", divided by the file's factors";
  divide_by_factors(binder, WeightSlot::RopeFactorsBeyond, rope.beyond);
}

}  // namespace sluice::models

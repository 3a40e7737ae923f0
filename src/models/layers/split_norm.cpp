#include "models/layers/split_norm.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/part_sums.h"

namespace sluice::models {

void run_norm(kernels::Backend& backend, const ModelSpec& spec, TensorView out, TensorView x,
              const Norm& norm) {
  if (spec.norm == NormKind::Rms) {
    backend.rms_norm(out, x, norm.gain, spec.norm_eps);
  } else {
    backend.layer_norm(out, x, norm.gain, norm.bias, spec.norm_eps);
  }
}

void run_split_norms(const LayerContext& c, std::span<const SplitNorm> norms, int rows, float eps) {
  auto* ops = dynamic_cast<kernels::PartSums*>(&c.backend);
  SLUICE_CHECK(ops != nullptr && c.tensor_group != nullptr && !norms.empty());
  const TensorView sums = c.scratch.get(Buffer::SquareSums, norms[0].x.dim(0), rows, DType::F32);
  std::fill_n(static_cast<float*>(sums.data), sums.elements(), 0.0f);
  const auto sums_of = [&](const SplitNorm& norm) { return sums.columns(norm.row, norm.row + 1); };
  for (const SplitNorm& norm : norms)
    if (norm.counts) ops->square_sums(sums_of(norm), norm.x);
  c.tensor_group->add_up(sums);
  for (const SplitNorm& norm : norms)
    ops->norm_by_sums(norm.x, sums_of(norm), norm.row_width, {norm.gain, eps});
}

void run_norm_of_columns(const LayerContext& c, TensorView x, const Norm& norm) {
  if (c.tensor_group == nullptr) return run_norm(c.backend, c.spec, x, x, norm);
  const int64_t row_width = x.dim(1) * c.tensor_group->placement().tensor.size;
  const SplitNorm own{.x = x, .gain = norm.gain, .row_width = row_width};
  run_split_norms(c, {&own, 1}, 1, c.spec.norm_eps);
}

}  // namespace sluice::models

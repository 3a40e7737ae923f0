#include "lab/plan/step_probe.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace sluice::lab {

namespace {

constexpr int kRows[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 80, 96, 128, 192, 256, 384, 512};
constexpr double kMostMultiplied = 3e9;             // with one number of rows; more tells nothing new
constexpr int64_t kMostBytes = int64_t{2} << 30;    // of all matrices: further layers are left out
constexpr int64_t kMostOutputs = int64_t{1} << 23;  // of one GEMM; those with more rows are not measured

int64_t matrix_bytes(const StepGemm& gemm) {
  return row_bytes(gemm.type, gemm.inputs) * gemm.outputs;
}

}  // namespace

double mean_of(std::span<const double> values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  if (values.size() < 3) return sum / double(values.size());
  return (sum - *std::max_element(values.begin(), values.end())) / double(values.size() - 1);
}

kernels::Memory rows_of_halves(kernels::Backend& backend, int64_t rows, int64_t width) {
  kernels::Memory memory = backend.allocate(DType::F32, {rows, width});
  std::fill_n(static_cast<float*>(memory.view.data), rows * width, 0.5F);
  return memory;
}

// Every byte the same: 1.06 as f16, a small number as bf16, never one that slows the processor down.
kernels::Weight prepared_matrix(kernels::Backend& backend, const StepGemm& gemm,
                                std::vector<std::byte>& memory) {
  memory.assign(static_cast<size_t>(matrix_bytes(gemm)), std::byte{0x3c});
  kernels::Weight weight;
  weight.parts = {TensorView::contiguous(memory.data(), gemm.type, {gemm.outputs, gemm.inputs})};
  weight.rows = gemm.outputs;
  weight.cols = gemm.inputs;
  return backend.prepare(std::move(weight));
}

StepProbe::StepProbe(kernels::Backend& backend, const std::vector<StepGemm>& step, TimeSource time)
    : backend_(backend), time_(time) {
  int64_t inputs = 0, outputs = 0, bytes = matrix_bytes(step.back());
  for (size_t i = 0; i < step.size(); ++i) {
    const StepGemm& gemm = step[i];
    const size_t shape = shape_of(gemm);
    const bool known = std::any_of(matrices_.begin(), matrices_.end(),
                                   [&](const Matrix& matrix) { return matrix.shape == shape; });
    if (known && i + 1 < step.size() && bytes + matrix_bytes(gemm) > kMostBytes) continue;
    bytes += matrix_bytes(gemm);
    Matrix& matrix = matrices_.emplace_back(Matrix{.shape = shape});
    matrix.weight = prepared_matrix(backend, gemm, matrix.stored);
    inputs = std::max(inputs, gemm.inputs);
    for (const int rows : kRows)
      if (rows * gemm.outputs <= kMostOutputs) outputs = std::max(outputs, rows * gemm.outputs);
  }
  x_ = rows_of_halves(backend, 1, *std::rbegin(kRows) * inputs);
  out_ = rows_of_halves(backend, 1, outputs);
}

size_t StepProbe::shape_of(const StepGemm& gemm) {
  const auto found =
      std::find_if(shapes_.begin(), shapes_.end(), [&](const Shape& shape) { return shape.gemm == gemm; });
  if (found != shapes_.end()) return static_cast<size_t>(found - shapes_.begin());
  shapes_.push_back({.gemm = gemm, .samples = std::vector<std::vector<double>>(std::size(kRows))});
  return shapes_.size() - 1;
}

void StepProbe::run(const Matrix& matrix, int rows) {
  Shape& shape = shapes_[matrix.shape];
  const StepGemm& gemm = shape.gemm;
  if (rows * gemm.outputs > kMostOutputs) return;
  const TensorView x = TensorView::contiguous(x_.view.data, DType::F32, {rows, gemm.inputs});
  const TensorView out = TensorView::contiguous(out_.view.data, DType::F32, {rows, gemm.outputs});
  const Stopwatch watch(time_);
  backend_.matmul(out, x, matrix.weight);
  shape.seconds += watch.seconds();
  ++shape.calls;
}

// Matrices of layers in turn, until the work is done and every shape was among them, or all were.
void StepProbe::run_layers(int rows, double work) {
  const size_t layers = matrices_.size() - 1;
  for (size_t i = 0; i < layers; ++i) {
    const Matrix& matrix = matrices_[next_++ % layers];
    run(matrix, rows);
    const StepGemm& gemm = shapes_[matrix.shape].gemm;
    work -= double(gemm.outputs) * double(gemm.inputs) * rows;
    if (work < 0 && i >= shapes_.size()) return;
  }
}

void StepProbe::sample(double overhead) {
  run_layers(1, 1e18);  // brings into the caches what they hold of a model that runs
  for (size_t r = 0; r < std::size(kRows); ++r) {
    for (Shape& shape : shapes_) shape.seconds = shape.calls = 0;
    run_layers(kRows[r], kMostMultiplied);
    run(matrices_.back(), kRows[r]);
    for (Shape& shape : shapes_) {
      if (shape.calls == 0) continue;
      const double each = shape.seconds / shape.calls,
                   elements = double(shape.gemm.outputs) * double(shape.gemm.inputs);
      shape.samples[r].push_back(std::max(each - overhead, each / 2) / elements);
    }
  }
}

void StepProbe::append(std::vector<GemmRate>& rates) const {
  for (const Shape& shape : shapes_)
    for (size_t r = 0; r < std::size(kRows); ++r)
      if (!shape.samples[r].empty())
        rates.push_back({shape.gemm.type, static_cast<int>(shape.gemm.outputs), kRows[r],
                         mean_of(shape.samples[r]), static_cast<int>(shape.gemm.inputs)});
}

}  // namespace sluice::lab

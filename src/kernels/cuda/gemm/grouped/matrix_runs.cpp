#include "kernels/cuda/gemm/grouped/matrix_runs.h"

#include <algorithm>

#include "base/check.h"

namespace sluice::kernels::cuda {

namespace {

bool same_kind(const Matrix& a, const Matrix& b) {
  return a.type == b.type && a.rows == b.rows && a.cols == b.cols && a.row_bytes == b.row_bytes &&
         a.units == b.units && (a.scales == nullptr) == (b.scales == nullptr);
}

}  // namespace

std::vector<MatrixRun> matrix_runs(std::span<const ListedWeight> weights) {
  std::vector<MatrixRun> runs;
  for (int64_t place = 0; place < std::ssize(weights); ++place) {
    const ListedWeight& weight = weights[static_cast<size_t>(place)];
    int64_t row = 0;
    for (const Matrix& matrix : weight.matrices) {
      const auto goes_on = [&](const MatrixRun& run) {
        return run.first + run.count == place && run.row == row && run.bias == weight.bias &&
               same_kind(run.shape, matrix);
      };
      auto run = std::ranges::find_if(runs, goes_on);
      if (run == runs.end()) {
        run = runs.insert(run, {matrix, row, place, 0, weight.bias});
        run->shape.data = nullptr;
      }
      ++run->count;
      row += matrix.rows;
    }
  }
  return runs;
}

const Matrix& matrix_at(const ListedWeight& weight, int64_t row) {
  int64_t begin = 0;
  for (const Matrix& matrix : weight.matrices) {
    if (begin == row) return matrix;
    begin += matrix.rows;
  }
  SLUICE_CHECK(false);
  return weight.matrices.front();
}

}  // namespace sluice::kernels::cuda

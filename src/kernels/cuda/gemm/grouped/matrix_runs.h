// Which matrices of a list of weights (experts, heads) one launch can multiply: those of a run lie at neighbouring places of
// the list and differ in nothing but their numbers. Weights of a list need not be alike: a file may keep some in other types
// than the rest, or gate and up of one expert in two types.
#pragma once

#include <span>
#include <vector>

#include "kernels/cuda/common/params.h"

namespace sluice::kernels::cuda {

// What DeviceWeight has.
struct ListedWeight {
  std::span<const Matrix> matrices;  // stacked by rows
  bool bias = false;
};

struct MatrixRun {
  Matrix shape;       // of each; data is null, of fp8 scales is that of the first
  int64_t row = 0;    // of the weights, with which the matrices begin
  int64_t first = 0;  // weight of the list
  int64_t count = 0;  // of weights
  bool bias = false;  // that the weights have
};

// Every matrix of the list is of one run. Where all weights are alike a run is as long as the list, and there is one for each of
// their matrices, in the order of rows.
std::vector<MatrixRun> matrix_runs(std::span<const ListedWeight> weights);

// The matrix of a weight that begins with that row. REQUIRES: there is one.
const Matrix& matrix_at(const ListedWeight& weight, int64_t row);

}  // namespace sluice::kernels::cuda

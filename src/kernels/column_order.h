// Matrices whose columns lie in another order than those of the activations that they are multiplied with.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/weight.h"

namespace sluice::kernels {

// Whether some part has an order of its own.
bool is_ordered(const Weight& weight);
// Whether all parts have the same order, or none has one.
bool shares_order(const Weight& weight);
// The order that all parts share; null: that of x. REQUIRES: they share one, as those of a weight without runs do once it is
// prepared.
const std::vector<int32_t>* column_order(const Weight& weight);

// The weight, made by `prepare`; where its parts differ in their order, with runs that are.
Weight prepare_runs(Weight weight, FunctionRef<Weight(Weight)> prepare);

// Calls multiply(out, run) with the columns of out [n, rows] that each run makes.
template <class Multiply>
void for_runs(const TensorView& out, const Weight& weight, Multiply multiply) {
  int64_t row = 0;
  for (const Weight& run : weight.runs) {
    multiply(out.columns(row, row + run.rows), run);
    row += run.rows;
  }
}

// out[k] = x[order[k]]
void order_columns(float* out, const float* x, const std::vector<int32_t>& order);

// Rows [begin, end) of a part in host memory as F32 [end - begin, cols], with columns in the order of x.
HostTensor in_order_of_x(const TensorView& part, const std::vector<int32_t>& order, int64_t begin,
                         int64_t end);

}  // namespace sluice::kernels

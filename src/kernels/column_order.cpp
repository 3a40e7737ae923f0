#include "kernels/column_order.h"

#include <algorithm>

#include "tensor/blocks.h"

namespace sluice::kernels {

namespace {

ColumnOrder order_of(const Weight& weight, size_t part) {
  return weight.orders.empty() ? nullptr : weight.orders[part];
}

bool same(const ColumnOrder& a, const ColumnOrder& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

// Parts [first, last), whose first row is `row` of the whole.
Weight run_of(const Weight& whole, size_t first, size_t last, int64_t row) {
  Weight run = whole;
  run.parts.assign(whole.parts.begin() + static_cast<ptrdiff_t>(first),
                   whole.parts.begin() + static_cast<ptrdiff_t>(last));
  run.orders.assign(last - first, whole.orders[first]);
  if (whole.stored.size() == whole.parts.size())
    run.stored.assign(whole.stored.begin() + static_cast<ptrdiff_t>(first),
                      whole.stored.begin() + static_cast<ptrdiff_t>(last));
  run.rows = 0;
  for (const TensorView& part : run.parts) run.rows += part.dim(0);
  if (!whole.bias.empty()) run.bias = whole.bias.rows(row, row + run.rows);
  return run;
}

}  // namespace

bool is_ordered(const Weight& weight) {
  return std::any_of(weight.orders.begin(), weight.orders.end(),
                     [](const ColumnOrder& order) { return order != nullptr; });
}

bool shares_order(const Weight& weight) {
  return std::all_of(weight.orders.begin(), weight.orders.end(),
                     [&](const ColumnOrder& order) { return same(order, weight.orders.front()); });
}

const std::vector<int32_t>* column_order(const Weight& weight) {
  return weight.orders.empty() ? nullptr : weight.orders.front().get();
}

Weight prepare_runs(Weight weight, FunctionRef<Weight(Weight)> prepare) {
  if (shares_order(weight)) return prepare(std::move(weight));
  std::vector<Weight> runs;
  int64_t row = 0;
  for (size_t first = 0, last = 0; first < weight.parts.size(); first = last) {
    while (last < weight.parts.size() && same(order_of(weight, first), order_of(weight, last))) ++last;
    runs.push_back(prepare(run_of(weight, first, last, row)));
    row += runs.back().rows;
  }
  weight.parts.clear();
  for (const Weight& run : runs) weight.parts.insert(weight.parts.end(), run.parts.begin(), run.parts.end());
  weight.runs = std::move(runs);
  return weight;
}

void order_columns(float* out, const float* x, const std::vector<int32_t>& order) {
  for (size_t k = 0; k < order.size(); ++k) out[k] = x[order[k]];
}

HostTensor in_order_of_x(const TensorView& part, const std::vector<int32_t>& order, int64_t begin,
                         int64_t end) {
  const int64_t cols = part.dim(1);
  SLUICE_CHECK_EQ(cols, static_cast<int64_t>(order.size()));
  HostTensor out = HostTensor::make(DType::F32, {end - begin, cols});
  std::vector<float> row(order.size());
  for (int64_t r = begin; r < end; ++r) {
    dequantize_row(part.dtype, part.rows(r, r + 1).data, row.data(), cols);
    float* to = out.view.at<float>(r - begin);
    for (size_t k = 0; k < order.size(); ++k) to[order[k]] = row[k];
  }
  return out;
}

}  // namespace sluice::kernels

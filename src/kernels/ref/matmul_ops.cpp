// GEMMs of the reference. A weight row is decoded once per call and used for all tokens.
#include "kernels/host.h"
#include "kernels/ref/ref_backend.h"
#include "tensor/blocks.h"

namespace sluice::kernels {

namespace {

double dot(const float* a, const float* b, int64_t size) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= size; i += 4) {
    for (int k = 0; k < 4; ++k) sums[k] += static_cast<double>(a[i + k]) * static_cast<double>(b[i + k]);
  }
  for (; i < size; ++i) sums[0] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

HostTensor in_order(const TensorView& x, const std::vector<int32_t>& order) {
  HostTensor out = HostTensor::make(DType::F32, {x.dim(0), x.dim(1)});
  for (int64_t i = 0; i < x.dim(0); ++i) order_columns(out.view.at<float>(i), x.at<float>(i), order);
  return out;
}

}  // namespace

void RefBackend::matmul(TensorView out, TensorView x, const Weight& weight) {
  SLUICE_CHECK_EQ(x.dim(1), weight.cols);
  SLUICE_CHECK_EQ(out.dim(1), weight.rows);
  SLUICE_CHECK_EQ(out.dim(0), x.dim(0));
  if (!weight.runs.empty())
    return for_runs(out, weight, [&](TensorView rows, const Weight& run) { matmul(rows, x, run); });
  const std::vector<int32_t>* order = column_order(weight);
  const HostTensor ordered = order == nullptr ? HostTensor() : in_order(x, *order);
  if (order != nullptr) x = ordered.view;
  std::vector<float> decoded(static_cast<size_t>(weight.cols));
  for (int64_t row = 0; row < weight.rows; ++row) {
    const WeightRow source = weight_row(weight, row);
    dequantize_row(source.type, source.data, decoded.data(), weight.cols);
    const double bias = weight.bias.empty() ? 0.0 : static_cast<double>(weight.bias.at<float>()[row]);
    for (int64_t i = 0; i < x.dim(0); ++i) {
      out.at<float>(i)[row] = static_cast<float>(dot(x.at<float>(i), decoded.data(), weight.cols) + bias);
    }
  }
}

void RefBackend::matmul_heads(TensorView out, TensorView x, std::span<const Weight> weights) {
  SLUICE_CHECK_EQ(x.dim(1), static_cast<int64_t>(weights.size()));
  for (size_t head = 0; head < weights.size(); ++head) {
    const auto index = static_cast<int64_t>(head);
    matmul(head_of(out, index), head_of(x, index), weights[head]);
  }
}

}  // namespace sluice::kernels

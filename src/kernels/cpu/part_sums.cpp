// Sums over the parts of ranks. Tasks are ranges of rows, or of columns where there are few rows; bytes moved: each part
// once, the result once.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/host.h"

namespace sluice::kernels::cpu {

namespace {

// In so many sums at a time, which any instruction set has vectors for: the bits are the same on all of them.
float square_sum(const float* x, int64_t width) {
  constexpr int64_t kLanes = 16;
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += x[i + lane] * x[i + lane];
  for (; i < width; ++i) sums[i % kLanes] += x[i] * x[i];
  for (int64_t step = kLanes / 2; step > 0; step /= 2)
    for (int64_t lane = 0; lane < step; ++lane) sums[lane] += sums[lane + step];
  return sums[0];
}

}  // namespace

void CpuBackend::add_parts(TensorView out, std::span<const TensorView> parts) {
  SLUICE_CHECK(!parts.empty());
  if (parts.size() == 1) {
    if (out.data != parts[0].data) copy(out, parts[0]);
    return;
  }
  for_pieces(out.dim(0), out.dim(1), [&](int64_t row, int64_t begin, int64_t end) {
    const auto at = [&](const TensorView& view) { return row_at<float>(view, row) + begin; };
    const int64_t count = end - begin;
    if (parts.size() == 2) return kernels_.add_scaled(at(out), at(parts[0]), at(parts[1]), 1.0f, count);
    // Any of the parts may be out: it is written when all are read.
    constexpr int64_t kTile = 1024;
    float sum[kTile];
    for (int64_t i = 0; i < count; i += kTile) {
      const int64_t size = std::min(kTile, count - i);
      kernels_.add_scaled(sum, at(parts[0]) + i, at(parts[1]) + i, 1.0f, size);
      for (size_t part = 2; part < parts.size(); ++part)
        kernels_.add_scaled(sum, sum, at(parts[part]) + i, 1.0f, size);
      std::memcpy(at(out) + i, sum, static_cast<size_t>(size) * sizeof(float));
    }
  });
}

void CpuBackend::add_parts_rms_norm(TensorView out, const Residual& x, std::span<const TensorView> parts,
                                    const RmsGain& norm) {
  SLUICE_CHECK(!parts.empty());
  const auto* gains = static_cast<const float*>(norm.gain.data);
  const int64_t width = x.sum.dim(-1);
  for_rows(x.sum.dim(0), width, [&](int64_t i) {
    float* row = row_at<float>(x.sum, i);
    float* normed = row_at<float>(out, i);
    const float* sum = row_at<float>(parts[0], i);
    for (size_t part = 1; part < parts.size(); ++part) {
      kernels_.add_scaled(normed, sum, row_at<float>(parts[part], i), 1.0f, width);
      sum = normed;
    }
    kernels_.add_scaled(row, row, sum, x.b_scale, width);
    kernels_.rms_norm(normed, row, gains, width, norm.eps);
  });
}

void CpuBackend::square_sums(TensorView sums, TensorView x) {
  for_rows(x.dim(0), x.dim(1),
           [&](int64_t i) { *row_at<float>(sums, i) = square_sum(row_at<float>(x, i), x.dim(1)); });
}

void CpuBackend::norm_by_sums(TensorView x, TensorView sums, int64_t row_width, const RmsGain& norm) {
  const auto* gains = static_cast<const float*>(norm.gain.data);
  for_rows(x.dim(0), x.dim(1), [&](int64_t i) {
    float* row = row_at<float>(x, i);
    const float factor = 1.0f / std::sqrt(*row_at<float>(sums, i) / static_cast<float>(row_width) + norm.eps);
    if (gains == nullptr) return kernels_.multiply(row, factor, x.dim(1));
    for (int64_t c = 0; c < x.dim(1); ++c) row[c] = row[c] * factor * gains[c];
  });
}

}  // namespace sluice::kernels::cpu

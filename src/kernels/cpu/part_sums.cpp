// Sums over the parts of ranks. Tasks are ranges of rows, or of columns where there are few rows; bytes moved: each part
// once, the result once.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/host.h"

namespace sluice::kernels::cpu {

namespace {

struct Piece {
  int64_t row, begin, end;  // columns
};

}  // namespace

void CpuBackend::add_parts(TensorView out, std::span<const TensorView> parts) {
  SLUICE_CHECK(!parts.empty());
  const int64_t width = out.dim(1);
  const auto add = [&](const Piece& piece) {
    const int64_t count = piece.end - piece.begin;
    const auto at = [&](const TensorView& view) { return row_at<float>(view, piece.row) + piece.begin; };
    float* to = at(out);
    if (parts.size() == 1) {
      if (to != at(parts[0])) std::memcpy(to, at(parts[0]), static_cast<size_t>(count) * sizeof(float));
      return;
    }
    if (parts.size() == 2) return kernels_.add_scaled(to, at(parts[0]), at(parts[1]), 1.0f, count);
    // Any of the parts may be out: it is written when all are read.
    constexpr int64_t kTile = 1024;
    float sum[kTile];
    for (int64_t begin = 0; begin < count; begin += kTile) {
      const int64_t size = std::min(kTile, count - begin);
      kernels_.add_scaled(sum, at(parts[0]) + begin, at(parts[1]) + begin, 1.0f, size);
      for (size_t i = 2; i < parts.size(); ++i)
        kernels_.add_scaled(sum, sum, at(parts[i]) + begin, 1.0f, size);
      std::memcpy(to + begin, sum, static_cast<size_t>(size) * sizeof(float));
    }
  };
  constexpr int64_t kPiece = 8192;  // columns
  const int64_t pieces = (width + kPiece - 1) / kPiece;
  for_rows(out.dim(0) * pieces, std::min(width, kPiece), [&](int64_t i) {
    const int64_t begin = i % pieces * kPiece;
    add({i / pieces, begin, std::min(begin + kPiece, width)});
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

}  // namespace sluice::kernels::cpu

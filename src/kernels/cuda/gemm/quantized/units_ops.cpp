// GEMMs with matrices in units, and such matrices as bf16.
#include <algorithm>

#include "kernels/cuda/gemm/gemm_routes.h"
#include "kernels/cuda/step/backend.h"

namespace sluice::kernels::cuda {

namespace {

constexpr int64_t kUnpackedBytes = int64_t{512} << 20;  // at most

int64_t bf16_bytes(const Matrix& matrix) {
  return matrix.rows * matrix.cols * 2;
}

}  // namespace

bool CudaBackendImpl::unpacked_fits(const Matrix& matrix) {
  return bf16_bytes(matrix) <= kUnpackedBytes;
}

// When weights are loaded: what is left of the memory is shared out afterwards.
void CudaBackendImpl::reserve_unpacked(const Matrix& matrix) {
  if (matrix.units == Units::None) return;
  unpacked_.at_least(static_cast<size_t>(std::min(bf16_bytes(matrix), kUnpackedBytes)));
}

Matrix CudaBackendImpl::unpacked(const Matrix& matrix) {
  UnpackUnitsParams p = blank<UnpackUnitsParams>();
  p.source = matrix;
  p.table = unit_table(matrix.type);
  p.out = unpacked_.at_least(static_cast<size_t>(bf16_bytes(matrix)));
  issue(launch_unpack_units, p);
  Matrix plain = blank<Matrix>();
  plain.data = p.out;
  plain.rows = matrix.rows;
  plain.cols = matrix.cols;
  plain.row_bytes = matrix.cols * 2;
  plain.type = DType::BF16;
  return plain;
}

UnitsGemmParams units_params(const GemmParams& gemm, bool gated, int32_t activation) {
  UnitsGemmParams u = blank<UnitsGemmParams>();
  u.gemm = gemm;
  u.table = unit_table(gemm.weight.type);
  u.gated = gated ? 1 : 0;
  u.activation = activation;
  return u;
}

Route units_route(const UnitsGemmParams& u) {
  return route_of(Stored::Units, u.gemm.x.n, [&](Route) { return units_fit(u); });
}

void CudaBackendImpl::units_gemm(const UnitsGemmParams& u) {
  const Route route = units_route(u);
  if (route == Route::Few) return issue(launch_units_few, u);
  if (route == Route::Many) return issue(launch_units_many, u);
  const GemmParams& whole = u.gemm;
  const int64_t fitting = std::max<int64_t>(128, kUnpackedBytes / (2 * whole.weight.cols) / 128 * 128);
  for (int64_t row = 0; row < whole.weight.rows; row += fitting) {
    GemmParams p = whole;
    p.weight.rows = std::min(fitting, whole.weight.rows - row);
    p.weight.data = static_cast<const std::byte*>(whole.weight.data) + row * whole.weight.row_bytes;
    p.weight = unpacked(p.weight);
    p.out.data = offset_columns(whole.out, row);
    p.out.dim = p.weight.rows;
    p.bias = whole.bias != nullptr ? whole.bias + row : nullptr;
    gemm(p);
  }
}

}  // namespace sluice::kernels::cuda

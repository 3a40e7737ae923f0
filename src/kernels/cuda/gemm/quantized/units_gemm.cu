// Which kernel multiplies which units.
#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/gemm/quantized/units_gemm.h"

namespace sluice::kernels::cuda {

bool units_fit(const UnitsGemmParams& u) {
  const GemmParams& p = u.gemm;
  const bool tokens =
      aligned16(p.x.data) && p.x.stride_n % 8 == 0 && (p.x.n == 1 || p.x.stride_n >= p.weight.cols);
  const bool rows = p.weight.rows < (1 << 30) && (u.gated == 0 || p.weight.rows % (2 * kUnitRows) == 0);
  const bool adds = p.added == 0 || (u.gated == 0 && p.weight.rows < kLongMatrix);
  return p.x.type == DType::BF16 && tokens && rows && adds && aligned16(p.weight.data);
}

bool units_norms(const UnitsGemmParams& u) {
  return u.gemm.x.n == 1 && u.gemm.weight.cols == u.gemm.x.dim && u.gemm.weight.cols <= kMostNormed;
}

void launch_units_few(const UnitsGemmParams& p, Stream stream) {
  visit_units(p.gemm.weight.units, [&](auto units) { UnitsGemm<decltype(units)::value>::few(p, stream); });
}

void launch_units_many(const UnitsGemmParams& p, Stream stream) {
  visit_units(p.gemm.weight.units, [&](auto units) { UnitsGemm<decltype(units)::value>::many(p, stream); });
}

}  // namespace sluice::kernels::cuda

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

// Halves of heads are whole rows of units, and what is rotated is a whole head in two halves.
bool units_rope_fits(const UnitsRopeParams& p) {
  const GemmParams& g = p.units.gemm;
  const RopeWriteParams& r = p.rope;
  const View &q = r.rope.x, &key = r.write.key, &value = r.write.value;
  const int64_t dim = q.dim;
  const auto* out = static_cast<const uint16_t*>(g.out.data);
  const auto stacked = [&](const View& v, int64_t first) {
    return v.data == out + first * dim && v.n == g.out.n && v.dim == dim && v.stride_n == g.out.stride_n &&
           v.stride_h == dim && v.type == DType::BF16;
  };
  const auto cache_fits = [](const CacheView& c) {
    return c.data != nullptr && (c.type == DType::BF16 || c.type == DType::F8_E4M3);
  };
  return r.normed == 0 && r.rope.interleaved == 0 && 2 * r.rope.pairs == dim && dim % (2 * kUnitRows) == 0 &&
         stacked(q, 0) && stacked(key, q.heads) && stacked(value, q.heads + key.heads) &&
         key.heads == value.heads && g.weight.rows == (q.heads + 2 * key.heads) * dim &&
         cache_fits(r.write.k) && cache_fits(r.write.v);
}

void launch_units_rope(const UnitsRopeParams& p, Stream stream) {
  visit_units(p.units.gemm.weight.units,
              [&](auto units) { UnitsGemm<decltype(units)::value>::rope(p, stream); });
}

void launch_units_few(const UnitsGemmParams& p, Stream stream) {
  visit_units(p.gemm.weight.units, [&](auto units) { UnitsGemm<decltype(units)::value>::few(p, stream); });
}

void launch_units_many(const UnitsGemmParams& p, Stream stream) {
  visit_units(p.gemm.weight.units, [&](auto units) { UnitsGemm<decltype(units)::value>::many(p, stream); });
}

}  // namespace sluice::kernels::cuda

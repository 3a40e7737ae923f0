// Norms that GEMMs make: one that is put off until the GEMM behind it, or between two GEMMs in halves.
#include "kernels/cuda/common/views.h"
#include "kernels/cuda/common/weights.h"
#include "kernels/cuda/gemm/gemm_dispatch.h"
#include "kernels/cuda/step/token_params.h"

namespace sluice::kernels::cuda {

bool GemmDispatch::matmul_add_norm(TensorView normed, TensorView sum, const kernels::DeferredMatmul& gemm,
                                   const kernels::RmsGain& gain) {
  const Weight& weight = *gemm.weight;
  const bool put_off = gain.for_next_matmul && step_.mode != Mode::Eager && !step_.deterministic;
  if (!put_off || !weight.runs.empty()) return false;
  const DeviceWeight& stored = device_weight(weight);
  if (stored.matrices.size() != 1 || stored.bias != nullptr || stored.order != nullptr) return false;
  GemmParams p = gemm_params(sum, gemm.x, weight);
  if (p.x.n == 0) return false;
  p.weight = stored.matrices[0];
  const GemmKernel kernel = row_of(GemmUse::Added, p).kernels[0];
  if (kernel != GemmKernel::SmallM && kernel != GemmKernel::Split) return false;
  NormParams norm = blank<NormParams>();
  norm.out = view_of(normed);
  norm.x = p.out;
  norm.gain = floats_of(gain.gain, p.out.dim);
  norm.eps = gain.eps;
  const int64_t parts = p.out.dim / (kernel == GemmKernel::Split ? kSplitSquares : kSmallMSquares);
  p.added = 1;
  p.sum.out = norm.out.data;
  p.sum.out_stride = norm.out.stride_n;
  p.sum.gain = norm.gain;
  p.sum.squares = static_cast<float*>(squares_.at_least(static_cast<size_t>(p.out.n * parts * 4)));
  if (kernel == GemmKernel::Split) {
    if (!split(p)) return false;
  } else {
    if (!gemm_small_m_fits(p)) return false;
    step_.issue(launch_gemm_small_m, p);
  }
  norm.factors.squares = p.sum.squares;
  norm.factors.parts = static_cast<int32_t>(parts);
  norm.factors.scale = 1.0f / static_cast<float>(p.out.dim);
  norm.factors.eps = gain.eps;
  step_.defer(norm);
  return true;
}

GemmParams GemmDispatch::with_norm(const GemmParams& gemm, bool takes) {
  if (!takes) return gemm;
  const std::optional<NormParams> norm = step_.take_norm(gemm.x);
  if (!norm) return gemm;
  GemmParams p = gemm;
  p.x = norm->x;
  p.norm.out = norm->out.data;
  p.norm.gain = norm->gain;
  p.norm.eps = norm->eps;
  return p;
}

GemmParams GemmDispatch::with_factors(const GemmParams& gemm) {
  GemmParams p = gemm;
  p.factors = step_.take_factors(gemm.x);
  return p;
}

}  // namespace sluice::kernels::cuda

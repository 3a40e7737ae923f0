// The GEMMs with one kind of units; instantiated by a file of their own each.
#pragma once

#include "kernels/cuda/gemm/quantized/units_few.cuh"
#include "kernels/cuda/gemm/quantized/units_many.cuh"

namespace sluice::kernels::cuda {

template <Units U>
void UnitsGemm<U>::few(const UnitsGemmParams& p, Stream stream) {
  launch_few<U>(p, stream);
}

template <Units U>
void UnitsGemm<U>::rope(const UnitsRopeParams& p, Stream stream) {
  launch_few_rope<U>(p, stream);
}

template <Units U>
void UnitsGemm<U>::many(const UnitsGemmParams& p, Stream stream) {
  p.gated != 0 ? launch_many<U, 2>(p, stream) : launch_many<U, 1>(p, stream);
}

}  // namespace sluice::kernels::cuda

// The GEMMs with units of Q5Offset.
#include "kernels/cuda/gemm/quantized/units_launch.cuh"

namespace sluice::kernels::cuda {

template struct UnitsGemm<Units::Q5Offset>;

}  // namespace sluice::kernels::cuda

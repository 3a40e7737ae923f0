// The GEMMs with units of Q6.
#include "kernels/cuda/gemm/quantized/units_launch.cuh"

namespace sluice::kernels::cuda {

template struct UnitsGemm<Units::Q6>;

}  // namespace sluice::kernels::cuda

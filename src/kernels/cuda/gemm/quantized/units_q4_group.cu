// The GEMMs with units of Q4Group.
#include "kernels/cuda/gemm/quantized/units_launch.cuh"

namespace sluice::kernels::cuda {

template struct UnitsGemm<Units::Q4Group>;

}  // namespace sluice::kernels::cuda

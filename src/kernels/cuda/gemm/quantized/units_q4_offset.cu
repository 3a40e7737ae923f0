// The GEMMs with units of Q4Offset.
#include "kernels/cuda/gemm/quantized/units_launch.cuh"

namespace sluice::kernels::cuda {

template struct UnitsGemm<Units::Q4Offset>;

}  // namespace sluice::kernels::cuda

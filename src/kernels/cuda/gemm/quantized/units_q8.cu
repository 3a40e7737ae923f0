// The GEMMs with units of Q8.
#include "kernels/cuda/gemm/quantized/units_launch.cuh"

namespace sluice::kernels::cuda {

template struct UnitsGemm<Units::Q8>;

}  // namespace sluice::kernels::cuda

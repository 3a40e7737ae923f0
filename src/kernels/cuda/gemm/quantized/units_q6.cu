// The products with units of Q6.
#include "kernels/cuda/gemm/quantized/units_launch.cuh"

namespace sluice::kernels::cuda {

template struct UnitsProducts<Units::Q6>;

}  // namespace sluice::kernels::cuda

// The products with units of Q5Offset.
#include "kernels/cuda/gemm/quantized/units_launch.cuh"

namespace sluice::kernels::cuda {

template struct UnitsProducts<Units::Q5Offset>;

}  // namespace sluice::kernels::cuda

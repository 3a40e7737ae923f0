// The products with units of Q8.
#include "kernels/cuda/gemm/quantized/units_launch.cuh"

namespace sluice::kernels::cuda {

template struct UnitsProducts<Units::Q8>;

}  // namespace sluice::kernels::cuda

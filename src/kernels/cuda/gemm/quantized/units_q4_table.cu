// The products with units of Q4Table.
#include "kernels/cuda/gemm/quantized/units_launch.cuh"

namespace sluice::kernels::cuda {

template struct UnitsProducts<Units::Q4Table>;

}  // namespace sluice::kernels::cuda

// The GEMMs with units of Q4Table.
#include "kernels/cuda/gemm/quantized/units_launch.cuh"

namespace sluice::kernels::cuda {

template struct UnitsGemm<Units::Q4Table>;

}  // namespace sluice::kernels::cuda

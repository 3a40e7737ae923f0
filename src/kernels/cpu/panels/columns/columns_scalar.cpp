// GEMMs over panels in columns with scalar.
#include "kernels/cpu/panels/columns/gemm_columns.h"
#include "kernels/cpu/simd/vec_scalar.h"

namespace sluice::kernels::cpu {

const ColumnKernels& scalar_columns() {
  static constexpr ColumnKernels kKernels = make_columns<Scalar>();
  return kKernels;
}

}  // namespace sluice::kernels::cpu

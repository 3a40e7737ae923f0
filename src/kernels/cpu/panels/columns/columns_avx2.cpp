// GEMMs over panels in columns with avx2.
#include "kernels/cpu/panels/columns/gemm_columns.h"
#include "kernels/cpu/simd/vec_avx2.h"

namespace sluice::kernels::cpu {

const ColumnKernels& avx2_columns() {
  static constexpr ColumnKernels kKernels = make_columns<Avx2>();
  return kKernels;
}

}  // namespace sluice::kernels::cpu

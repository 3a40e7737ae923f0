// GEMMs over panels in columns with avx512.
#include "kernels/cpu/panels/columns/gemm_columns.h"
#include "kernels/cpu/simd/vec_avx512.h"

namespace sluice::kernels::cpu {

const ColumnKernels& avx512_columns() {
  static constexpr ColumnKernels kKernels = make_columns<Avx512>();
  return kKernels;
}

}  // namespace sluice::kernels::cpu

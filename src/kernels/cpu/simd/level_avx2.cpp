// The shared kernels with AVX2, FMA and F16C.
#include "kernels/cpu/simd/levels.h"
#include "kernels/cpu/simd/make_table.h"
#include "kernels/cpu/simd/vec_avx2.h"

namespace sluice::kernels::cpu {

const KernelTable& avx2_kernels() {
  static constexpr KernelTable kTable = make_table<Avx2>();
  return kTable;
}

}  // namespace sluice::kernels::cpu

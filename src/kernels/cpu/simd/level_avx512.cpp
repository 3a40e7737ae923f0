// The shared kernels with AVX-512 F, BW, VL and DQ.
#include "kernels/cpu/simd/levels.h"
#include "kernels/cpu/simd/make_table.h"
#include "kernels/cpu/simd/vec_avx512.h"

namespace sluice::kernels::cpu {

const KernelTable& avx512_kernels() {
  static constexpr KernelTable kTable = make_table<Avx512>();
  return kTable;
}

}  // namespace sluice::kernels::cpu

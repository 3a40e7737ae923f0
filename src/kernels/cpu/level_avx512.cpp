// The shared kernels with AVX-512 F, BW, VL and DQ.
#include "kernels/cpu/levels.h"
#include "kernels/cpu/make_table.h"
#include "kernels/cpu/vec_avx512.h"

namespace sluice::kernels::cpu {

const KernelTable& avx512_kernels() {
  static constexpr KernelTable kTable = make_table<Avx512>();
  return kTable;
}

}  // namespace sluice::kernels::cpu

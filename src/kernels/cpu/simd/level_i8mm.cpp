// The shared kernels with SDOT and SMMLA.
#include "kernels/cpu/simd/levels.h"
#include "kernels/cpu/simd/make_table.h"
#include "kernels/cpu/simd/vec_i8mm.h"

namespace sluice::kernels::cpu {

const KernelTable& i8mm_kernels() {
  static constexpr KernelTable kTable = make_table<I8mm>();
  return kTable;
}

}  // namespace sluice::kernels::cpu

// The shared kernels with SDOT.
#include "kernels/cpu/simd/levels.h"
#include "kernels/cpu/simd/make_table.h"
#include "kernels/cpu/simd/vec_dotprod.h"

namespace sluice::kernels::cpu {

const KernelTable& dotprod_kernels() {
  static constexpr KernelTable kTable = make_table<Dotprod>();
  return kTable;
}

}  // namespace sluice::kernels::cpu

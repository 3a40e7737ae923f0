// The shared kernels with SDOT.
#include "kernels/cpu/levels.h"
#include "kernels/cpu/make_table.h"
#include "kernels/cpu/vec_dotprod.h"

namespace sluice::kernels::cpu {

const KernelTable& dotprod_kernels() {
  static constexpr KernelTable kTable = make_table<Dotprod>();
  return kTable;
}

}  // namespace sluice::kernels::cpu

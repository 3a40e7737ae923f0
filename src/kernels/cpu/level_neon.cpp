// The shared kernels for every aarch64 processor.
#include "kernels/cpu/levels.h"
#include "kernels/cpu/make_table.h"
#include "kernels/cpu/vec_neon.h"

namespace sluice::kernels::cpu {

const KernelTable& neon_kernels() {
  static constexpr KernelTable kTable = make_table<Neon>();
  return kTable;
}

}  // namespace sluice::kernels::cpu

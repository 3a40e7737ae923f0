// The shared kernels for every aarch64 processor.
#include "kernels/cpu/simd/levels.h"
#include "kernels/cpu/simd/make_table.h"
#include "kernels/cpu/simd/vec_neon.h"

namespace sluice::kernels::cpu {

const KernelTable& neon_kernels() {
  static constexpr KernelTable kTable = make_table<Neon>();
  return kTable;
}

}  // namespace sluice::kernels::cpu

// The shared kernels with SDOT, SMMLA and BFMMLA.
#include "kernels/cpu/simd/levels.h"
#include "kernels/cpu/simd/make_table.h"
#include "kernels/cpu/simd/vec_bf16.h"

namespace sluice::kernels::cpu {

const KernelTable& bf16_kernels() {
  static constexpr KernelTable kTable = make_table<Bf16>();
  return kTable;
}

}  // namespace sluice::kernels::cpu

// The shared kernels in portable C++.
#include "kernels/cpu/simd/levels.h"
#include "kernels/cpu/simd/make_table.h"
#include "kernels/cpu/simd/vec_scalar.h"

namespace sluice::kernels::cpu {

const KernelTable& scalar_kernels() {
  static constexpr KernelTable kTable = make_table<Scalar>();
  return kTable;
}

}  // namespace sluice::kernels::cpu

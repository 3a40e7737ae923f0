// The shared kernels in portable C++.
#include "kernels/cpu/levels.h"
#include "kernels/cpu/make_table.h"
#include "kernels/cpu/vec_scalar.h"

namespace sluice::kernels::cpu {

const KernelTable& scalar_kernels() {
  static constexpr KernelTable kTable = make_table<Scalar>();
  return kTable;
}

}  // namespace sluice::kernels::cpu

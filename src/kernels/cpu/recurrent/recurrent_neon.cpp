// The kernels of layers that keep a state with neon.
#include "kernels/cpu/recurrent/recurrent.h"
#include "kernels/cpu/simd/vec_neon.h"

namespace sluice::kernels::cpu {

const RecurrentKernels& neon_recurrent() {
  static constexpr RecurrentKernels kKernels = make_recurrent<Neon>();
  return kKernels;
}

}  // namespace sluice::kernels::cpu

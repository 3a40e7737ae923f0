// The kernels of layers that keep a state with avx2.
#include "kernels/cpu/recurrent/recurrent.h"
#include "kernels/cpu/simd/vec_avx2.h"

namespace sluice::kernels::cpu {

const RecurrentKernels& avx2_recurrent() {
  static constexpr RecurrentKernels kKernels = make_recurrent<Avx2>();
  return kKernels;
}

}  // namespace sluice::kernels::cpu

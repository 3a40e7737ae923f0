// The kernels of layers that keep a state with avx512.
#include "kernels/cpu/recurrent/recurrent.h"
#include "kernels/cpu/simd/vec_avx512.h"

namespace sluice::kernels::cpu {

const RecurrentKernels& avx512_recurrent() {
  static constexpr RecurrentKernels kKernels = make_recurrent<Avx512>();
  return kKernels;
}

}  // namespace sluice::kernels::cpu

// The kernels of layers that keep a state with scalar.
#include "kernels/cpu/recurrent/recurrent.h"
#include "kernels/cpu/simd/vec_scalar.h"

namespace sluice::kernels::cpu {

const RecurrentKernels& scalar_recurrent() {
  static constexpr RecurrentKernels kKernels = make_recurrent<Scalar>();
  return kKernels;
}

}  // namespace sluice::kernels::cpu

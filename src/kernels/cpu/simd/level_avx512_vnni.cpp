// The shared kernels with AVX-512 and VNNI.
#include "kernels/cpu/simd/levels.h"
#include "kernels/cpu/simd/make_table.h"
#include "kernels/cpu/simd/vec_avx512_vnni.h"

namespace sluice::kernels::cpu {

const KernelTable& avx512_vnni_kernels() {
  static constexpr KernelTable kTable = make_table<Avx512Vnni>();
  return kTable;
}

}  // namespace sluice::kernels::cpu

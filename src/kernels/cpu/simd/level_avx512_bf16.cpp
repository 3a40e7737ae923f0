// The shared kernels with AVX-512, VNNI and BF16.
#include "kernels/cpu/simd/levels.h"
#include "kernels/cpu/simd/make_table.h"
#include "kernels/cpu/simd/vec_avx512_bf16.h"

namespace sluice::kernels::cpu {

const KernelTable& avx512_bf16_kernels() {
  static constexpr KernelTable kTable = make_table<Avx512Bf16>();
  return kTable;
}

}  // namespace sluice::kernels::cpu

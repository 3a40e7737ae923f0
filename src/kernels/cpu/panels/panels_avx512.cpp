// GEMMs over panels with AVX-512 F, BW, VL and DQ.
#include "kernels/cpu/panels/gemm.h"
#include "kernels/cpu/panels/quantize.h"
#include "kernels/cpu/panels/words_avx512.h"

namespace sluice::kernels::cpu {

const PanelKernels& avx512_panels() {
  static const PanelKernels kKernels{.gemm = gemm_panels<PanelAvx512>,
                                     .quantize = quantize_for_panels<PanelAvx512>,
                                     .columns = &avx512_columns()};
  return kKernels;
}

}  // namespace sluice::kernels::cpu

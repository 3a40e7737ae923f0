// GEMMs over panels with AVX2 and FMA.
#include "kernels/cpu/panels/gemm.h"
#include "kernels/cpu/panels/quantize.h"
#include "kernels/cpu/panels/words_avx2.h"

namespace sluice::kernels::cpu {

const PanelKernels& avx2_panels() {
  static const PanelKernels kKernels{
      .gemm = gemm_panels<PanelAvx2>, .quantize = quantize_for_panels<PanelAvx2>, .columns = &avx2_columns()};
  return kKernels;
}

}  // namespace sluice::kernels::cpu

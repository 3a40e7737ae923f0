// GEMMs over panels with AVX-512 VNNI.
#include "kernels/cpu/panels/gemm.h"
#include "kernels/cpu/panels/quantize.h"
#include "kernels/cpu/panels/words_avx512_vnni.h"

namespace sluice::kernels::cpu {

const PanelKernels& avx512_vnni_panels() {
  static const PanelKernels kKernels{.gemm = gemm_panels<PanelAvx512Vnni>,
                                     .quantize = quantize_for_panels<PanelAvx512Vnni>,
                                     .columns = &avx512_columns()};
  return kKernels;
}

}  // namespace sluice::kernels::cpu

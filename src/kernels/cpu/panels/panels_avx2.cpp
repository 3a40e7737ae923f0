// GEMMs over panels with AVX2 and FMA.
#include "kernels/cpu/panels/gemm.h"
#include "kernels/cpu/panels/quantize.h"
#include "kernels/cpu/panels/words_avx2.h"

namespace sluice::kernels::cpu {

const PanelKernels& avx2_panels() {
  static constexpr PanelKernels kKernels{gemm_panels<PanelAvx2>, quantize_for_panels<PanelAvx2>};
  return kKernels;
}

}  // namespace sluice::kernels::cpu

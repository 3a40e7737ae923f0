// GEMMs over panels for every aarch64 processor.
#include "kernels/cpu/panels/gemm.h"
#include "kernels/cpu/panels/quantize.h"
#include "kernels/cpu/panels/words_neon.h"

namespace sluice::kernels::cpu {

const PanelKernels& neon_panels() {
  static constexpr PanelKernels kKernels{gemm_panels<PanelNeon>, quantize_for_panels<PanelNeon>};
  return kKernels;
}

}  // namespace sluice::kernels::cpu

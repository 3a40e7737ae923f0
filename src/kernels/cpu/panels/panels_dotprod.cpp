// GEMMs over panels with SDOT.
#include "kernels/cpu/panels/gemm.h"
#include "kernels/cpu/panels/quantize.h"
#include "kernels/cpu/panels/words_dotprod.h"

namespace sluice::kernels::cpu {

const PanelKernels& dotprod_panels() {
  static constexpr PanelKernels kKernels{gemm_panels<PanelDotprod>, quantize_for_panels<PanelDotprod>};
  return kKernels;
}

}  // namespace sluice::kernels::cpu

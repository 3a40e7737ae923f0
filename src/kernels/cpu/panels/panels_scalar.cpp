// GEMMs over panels in portable C++.
#include "kernels/cpu/panels/gemm.h"
#include "kernels/cpu/panels/quantize.h"
#include "kernels/cpu/panels/words_scalar.h"

namespace sluice::kernels::cpu {

const PanelKernels& scalar_panels() {
  static constexpr PanelKernels kKernels{gemm_panels<PanelScalar>, quantize_for_panels<PanelScalar>};
  return kKernels;
}

}  // namespace sluice::kernels::cpu

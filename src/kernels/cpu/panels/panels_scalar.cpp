// GEMMs over panels in portable C++.
#include "kernels/cpu/panels/gemm.h"
#include "kernels/cpu/panels/quantize.h"
#include "kernels/cpu/panels/words_scalar.h"

namespace sluice::kernels::cpu {

const PanelKernels& scalar_panels() {
  static const PanelKernels kKernels{.gemm = gemm_panels<PanelScalar>,
                                     .quantize = quantize_for_panels<PanelScalar>,
                                     .columns = &scalar_columns()};
  return kKernels;
}

}  // namespace sluice::kernels::cpu

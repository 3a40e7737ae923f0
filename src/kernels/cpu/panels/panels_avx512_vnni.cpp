// GEMMs over panels with AVX-512 VNNI.
#include "kernels/cpu/panels/gemm.h"
#include "kernels/cpu/panels/quantize.h"
#include "kernels/cpu/panels/words_avx512_vnni.h"

namespace sluice::kernels::cpu {

const PanelKernels& avx512_vnni_panels() {
  static constexpr PanelKernels kKernels{gemm_panels<PanelAvx512Vnni>, quantize_for_panels<PanelAvx512Vnni>};
  return kKernels;
}

}  // namespace sluice::kernels::cpu

// Grouped GEMMs of many entries by clusters of two blocks.
#pragma once

#include "kernels/cuda/gemm/grouped/grouped_gemm_params.h"

namespace sluice::kernels::cuda {

// bf16 results, whole pieces of eight, 256 columns or more, and none by head.
bool grouped_gemm_cluster_fits(const GroupedGemmSm90Params&);
// REQUIRES: grouped_gemm_cluster_fits(params).
void launch_grouped_gemm_cluster(const GroupedGemmSm90Params&, Stream);

}  // namespace sluice::kernels::cuda

// One function per level file (level_NAME.cpp, compiled with that level's instructions).
#pragma once

#include "kernels/cpu/simd/kernel_table.h"

namespace sluice::kernels::cpu {

const KernelTable& scalar_kernels();

const KernelTable& neon_kernels();
const KernelTable& dotprod_kernels();
const KernelTable& i8mm_kernels();
const KernelTable& bf16_kernels();

const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
const KernelTable& avx512_vnni_kernels();
const KernelTable& avx512_bf16_kernels();
const KernelTable& amx_kernels();        // attention/attention_amx.cpp
const KernelTable& amx_model_kernels();  // the same over a model of the tile instructions

}  // namespace sluice::kernels::cpu

// What an instruction set offers for weights in panels (format.h): plain functions over plain memory. No result depends on
// how the work was cut, and all instruction sets give the same bits.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace sluice::kernels::cpu {

// 32 activations as int8, rounded as those of ActivationBlock: x ≈ scale * quant.
struct alignas(64) PanelActivations {
  int8_t quants[32];
  float scale;
  float sum;                  // scale * sum of quants
  float half_sums[2];         // the same over each 16
  int32_t negated_sum;        // - sum of quants: what codes with an offset count too much
  int32_t negated_halves[2];  // the same over each 16
};

// out[token][row] = x[token] · weights[row] (+ bias[row]) for rows [0, rows) and tokens [0, tokens).
struct PanelGemm {
  DType type;
  const uint8_t* panels;  // panel 0; panels follow each other
  int64_t rows;           // from panel 0 on
  int64_t cols;
  int64_t tokens;
  const float* bias;  // of row 0, or null
  float* out;         // of token 0, row 0
  int64_t out_stride;
  const PanelActivations* x;  // token 0; cols / 32 per token
};

struct PanelKernels {
  void (*gemm)(const PanelGemm&);
  // `count` times 32 activations. What is not finite makes sums that are not finite.
  void (*quantize)(PanelActivations* out, const float* x, int64_t count);
};

// One function per file panels_NAME.cpp, compiled with that level's instructions.
const PanelKernels& scalar_panels();
const PanelKernels& neon_panels();
const PanelKernels& dotprod_panels();
const PanelKernels& avx2_panels();
const PanelKernels& avx512_vnni_panels();

}  // namespace sluice::kernels::cpu

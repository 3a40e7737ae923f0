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

// Tokens that a matrix tile takes at once.
inline constexpr int64_t kTileTokens = 16;

// A piece of 32 columns of 16 tokens, as matrix tiles read it: the numbers of PanelActivations, field by field.
struct alignas(64) ActivationTile {
  int8_t quants[kTileTokens][32];
  float scale[kTileTokens];
  float sum[kTileTokens];
  float half_sums[2][kTileTokens];
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
  const ActivationTile* tiles =
      nullptr;  // instead of x: 16 tokens from token 0 on; cols / 32 for each 16 tokens
};

struct PanelKernels {
  void (*gemm)(const PanelGemm&);
  // `count` times 32 activations. What is not finite makes sums that are not finite.
  void (*quantize)(PanelActivations* out, const float* x, int64_t count);
  // The same into one token's place in `count` tiles; null where the level has no tiles.
  void (*quantize_tiles)(ActivationTile* out, int64_t place, const float* x, int64_t count) = nullptr;
  int64_t tiles_from = 0;  // with tiles: from this number of tokens on they are faster
};

// One function per file panels_NAME.cpp, compiled with that level's instructions.
const PanelKernels& scalar_panels();
const PanelKernels& neon_panels();
const PanelKernels& dotprod_panels();
const PanelKernels& avx2_panels();
const PanelKernels& avx512_vnni_panels();
const PanelKernels& amx_panels();
// AMX with its tile instructions in plain loops: needs AVX-512 VNNI only. For tests.
const PanelKernels& amx_model_panels();

}  // namespace sluice::kernels::cpu

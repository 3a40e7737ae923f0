// GEMMs, and what brings their operands into the types they take.
#pragma once

#include "kernels/cuda/common/params.h"

namespace sluice::kernels::cuda {

// Rows of a plain type to scaled fp8: scale = largest magnitude / 448, elements rounded to nearest even.
struct QuantizeRowsParams {
  Matrix source;
  void* out;      // rows of `out_row_bytes`, header first
  float* scales;  // [rows]
  int64_t out_row_bytes;
};
void launch_quantize_rows(const QuantizeRowsParams&, Stream);

// The same for tokens, x[n, dim]; rows of `out_row_bytes` without header. With `up` it is the gate(x, up), rounded to bf16,
// that becomes fp8.
struct QuantizeTokensParams {
  View x;
  View up;  // data null: none
  void* out;
  float* scales;  // [n]
  int64_t out_row_bytes;
  int32_t activation;  // of the gate, kernels::Activation
};
inline constexpr int64_t kMostGatedColumns = 16384;  // with `up`
void launch_quantize_tokens(const QuantizeTokensParams&, Stream);

// Rows of any weight type to bf16, `stride` elements apart; columns up to `stride` become zero.
struct DequantizeParams {
  Matrix source;
  void* out;
  int64_t stride;
};
void launch_dequantize(const DequantizeParams&, Stream);
// Behind a kernel that makes a matrix: GEMMs read weights before they wait for the kernel in front.
void launch_settle(Stream);

// out[i] = x[i] with column k taken from column order[k]; both of one type.
struct OrderColumnsParams {
  View out, x;
  const int32_t* order;  // [dim]
};
void launch_order_columns(const OrderColumnsParams&, Stream);

// f32 rows as two bf16 numbers each: rows [0, n) of `out` are x rounded, rows [n, 2 n) what that leaves over, rounded.
struct SplitParams {
  View x;
  void* out;  // [2 n, dim]
};
void launch_split(const SplitParams&, Stream);

// out[i] = parts[i] + parts[n + i] + bias; f32.
struct JoinParams {
  View out;
  const float* parts;  // [2 n, dim]
  const float* bias;   // [dim] or null
};
void launch_join(const JoinParams&, Stream);

// Reads memory and does nothing with it: leaves the L2 full of lines that need no writing back.
void launch_read(const void* data, size_t bytes, Stream);

// A norm of x that a GEMM does before it multiplies: x is what the norm reads.
struct InputNorm {
  void* out;          // where the normed x goes besides; null: x is multiplied as it is
  const float* gain;  // [cols] or null
  float eps;
};

// The second half of a norm by rms of x, which holds rows times the gain: results are multiplied by
// 1 / sqrt(scale * (sum of the row's squares) + eps).
struct NormFactors {
  const float* squares;  // [n, parts]: sums that add up to a row's; null: results stay as they are
  int32_t parts;         // a multiple of 4
  float scale, eps;
};

// The first half of a norm by rms of the sums that a GEMM leaves.
struct NormedSum {
  void* out;          // rows times the gain, bf16; null: none
  const float* gain;  // [rows of the weight] or null
  float* squares;     // [n, rows of the weight / kSplitSquares or kSmallMSquares]
  int64_t out_stride;
};
// Columns whose squares are added up.
inline constexpr int64_t kSplitSquares = 32, kSmallMSquares = 16;

// out[n, rows] = x[n, cols] · weightᵀ + bias
struct GemmParams {
  View out, x;
  Matrix weight;
  const float* bias;
  InputNorm norm;  // where gemv_norms(), gemm_small_m_norms() and gemm_wide_one_fits() say so
  // Of launch_gemv of bf16 and scaled fp8, launch_units_few, and with `sum`: out += instead of out =.
  int32_t added;
  // Bf16 weights of launch_gemm_small_m, launch_gemm_split, and both gated, and launch_gemm_swiglu.
  NormFactors factors;
  // Bf16 weights of launch_gemm_small_m and launch_gemm_split: with `added`.
  NormedSum sum;
};
inline constexpr int64_t kLongMatrix = 65536;  // rows: as many as a vocabulary has words
// Most tokens of launch_gemm_fixed, and of launch_gemm_small_m with fp8 in one order.
inline constexpr int64_t kFixedTokens = 32, kFixedTokensFp8 = 16;
// One token to eight, or one with bf16 and scaled fp8; any weight type. REQUIRES: gemv_fits(params).
bool gemv_fits(const GemmParams&);
bool gemv_at_once(
    const GemmParams&);  // whether all rows can be on their way at a time, half a row or more of each
bool gemv_adds(const GemmParams&);   // whether launch_gemv takes `added`
bool gemv_norms(const GemmParams&);  // whether it takes a norm at less than that costs by itself
void launch_gemv(const GemmParams&, Stream);

// Up to 32 tokens, bf16 or scaled fp8. REQUIRES: gemm_small_m_fits(params).
bool gemm_small_m_fits(const GemmParams&);
void launch_gemm_small_m(const GemmParams&, Stream);

// Up to 32 tokens, bf16, no bias: every sum is one chain over the columns, first to last, for any number of tokens.
// REQUIRES: gemm_fixed_fits(params), which is the same for more tokens.
bool gemm_fixed_fits(const GemmParams&);
void launch_gemm_fixed(const GemmParams&, Stream);

// f32 results of bf16 tokens and a bf16 matrix of few rows, such as a router's: sums do not depend on n.
// REQUIRES: gemm_wide_fits(params).
bool gemm_wide_fits(const GemmParams&);
void launch_gemm_wide(const GemmParams&, Stream);
// One token in another order of sums, with a norm.
bool gemm_wide_one_fits(const GemmParams&);
void launch_gemm_wide_one(const GemmParams&, Stream);

// out[n, inner] = activation(gate) * up, where gate and up are the halves of x · weightᵀ + bias. The same
// conditions as above, for the whole GEMM; the first for bf16 and scaled fp8 only.
struct GatedGemmParams {
  GemmParams gemm;  // out is [n, inner], weight [2 * inner, cols]
  int32_t activation;
};
void launch_gemv_gated(const GatedGemmParams&, Stream);
void launch_gemm_small_m_gated(const GatedGemmParams&, Stream);

// Many tokens, bf16, no bias, gated with Silu: out [n, rows / 2]. REQUIRES: gemm_swiglu_fits(params).
bool gemm_swiglu_fits(const GemmParams&);
bool gemm_swiglu_busy(const GemmParams&);  // whether there are rows enough for most multiprocessors
void launch_gemm_swiglu(const GemmParams&, Stream);

// Up to kMostSplitTokens tokens: bf16, or scaled fp8 on both sides; blocks of a cluster share the columns out.
struct GemmSplitParams {
  GemmParams gemm;            // of fp8: x as launch_quantize_tokens makes it
  const float* x_scales;      // [n] of fp8, else null
  int32_t gated;              // out [n, rows / 2] is the gate of the halves of x · weightᵀ
  int32_t activation;         // of the gate, kernels::Activation
  int32_t tile_rows, shares;  // how the matrix is cut; 0: the kernel chooses
};
inline constexpr int64_t kMostSplitTokens = 256;
bool gemm_split_fits(const GemmSplitParams&);
void launch_gemm_split(const GemmSplitParams&, Stream);

}  // namespace sluice::kernels::cuda

// GEMMs of activations [tokens, cols] with weight rows [rows, cols], for every weight type. Included by
// the level files only.
//
// Block types: four rows by up to four tokens at a time. A block of 32 weights is unpacked in registers,
// multiplied with the tokens' int8 blocks into exact integer sums, and added to one float per row and token:
//   sum = fma(float(integer sum), scale * x.scale, sum), then sum = fma(min, x.sum, sum),
// block after block. The order is the same for every tile and level, so all levels give the same bits.
//
// Plain types: plain.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm/block_types.h"
#include "kernels/cpu/gemm/plain.h"
#include "kernels/cpu/simd/kernel_table.h"

namespace sluice::kernels::cpu {
namespace {

// -- block types

template <class I, class T, int N>
void add_piece(Rows4 rows, int64_t at, int piece, const ActivationBlock* const (&x)[N],
               typename I::F4 (&sums)[N]) {
  typename I::I8x32 weights[4];
  for (int r = 0; r < 4; ++r) weights[r] = T::unpack(rows[r] + at, piece);
  typename I::I4 integer[N];
  if constexpr (T::kScaledHalves) {
    HalfScales scales;
    for (int r = 0; r < 4; ++r) {
      scales.low[r] = T::half_scale(rows[r] + at, 2 * piece);
      scales.high[r] = T::half_scale(rows[r] + at, 2 * piece + 1);
    }
    I::template scaled_dots<N>(weights, scales, x, integer);
  } else {
    I::template dots<N>(weights, x, integer);
  }
  const auto scale = T::scale(rows, at, piece);
  for (int n = 0; n < N; ++n) {
    sums[n] = I::fma4(I::to_float4(integer[n]), I::mul4(scale, I::splat4(x[n]->scale)), sums[n]);
  }
  if constexpr (T::kMin) {
    const auto min = T::min(rows, at, piece);
    for (int n = 0; n < N; ++n) sums[n] = I::fma4(min, I::splat4(x[n]->sum), sums[n]);
  }
  if constexpr (T::kMinHalves) {
    for (int half = 0; half < 2; ++half) {
      const auto min = T::min_half(rows, at, 2 * piece + half);
      for (int n = 0; n < N; ++n) sums[n] = I::fma4(min, I::splat4(x[n]->half_sums[half]), sums[n]);
    }
  }
}

// The same where each 16 elements have a float of their own as their scale.
template <class I, class T, int N>
void add_float_halves(Rows4 rows, int64_t at, const ActivationBlock* const (&x)[N],
                      typename I::F4 (&sums)[N]) {
  typename I::I8x32 weights[4];
  for (int r = 0; r < 4; ++r) weights[r] = T::unpack(rows[r] + at, 0);
  typename I::I4 low[N], high[N];
  I::template scaled_dots<N>(weights, {{1, 1, 1, 1}, {0, 0, 0, 0}}, x, low);
  I::template scaled_dots<N>(weights, {{0, 0, 0, 0}, {1, 1, 1, 1}}, x, high);
  const auto first = T::half_scale(rows, at, 0), second = T::half_scale(rows, at, 1);
  for (int n = 0; n < N; ++n) {
    const auto sum = I::fma4(I::to_float4(high[n]), second, I::mul4(I::to_float4(low[n]), first));
    sums[n] = I::fma4(sum, I::splat4(x[n]->scale), sums[n]);
  }
}

// Four rows (of which `valid` are stored) by N tokens from `token` on.
template <class I, class T, int N>
void block_tile(const Gemm& gemm, Rows4 rows, int64_t row, int valid, int64_t token) {
  const int64_t pieces = gemm.cols / 32;
  const ActivationBlock* x[N];
  typename I::F4 sums[N];
  for (int n = 0; n < N; ++n) {
    x[n] = gemm.blocks + (token + n) * pieces;
    sums[n] = I::splat4(0.0f);
  }
  int64_t at = 0;
  for (int64_t i = 0; i < pieces; i += T::kPieces, at += T::kBytes) {
    for (int piece = 0; piece < T::kPieces; ++piece) {
      if constexpr (requires { T::kFloatHalves; }) {
        add_float_halves<I, T, N>(rows, at, x, sums);
      } else {
        add_piece<I, T, N>(rows, at, piece, x, sums);
      }
      for (int n = 0; n < N; ++n) ++x[n];
    }
  }
  for (int n = 0; n < N; ++n) {
    float results[4];
    I::store4(results, sums[n]);
    float* out = gemm.out + (token + n) * gemm.out_stride + row;
    for (int r = 0; r < valid; ++r)
      out[r] = gemm.bias == nullptr ? results[r] : results[r] + gemm.bias[row + r];
  }
}

template <class I, class T>
void gemm_blocks(const Gemm& gemm) {
  const int64_t row_bytes = gemm.cols / (32 * T::kPieces) * T::kBytes;
  for (int64_t row = 0; row < gemm.rows; row += 4) {
    const int valid = gemm.rows - row < 4 ? static_cast<int>(gemm.rows - row) : 4;
    const uint8_t* rows[4];
    for (int r = 0; r < 4; ++r) rows[r] = gemm.weights + (row + (r < valid ? r : 0)) * row_bytes;
    int64_t token = 0;
    for (; token + 4 <= gemm.tokens; token += 4) block_tile<I, T, 4>(gemm, rows, row, valid, token);
    if (token + 2 <= gemm.tokens) {
      block_tile<I, T, 2>(gemm, rows, row, valid, token);
      token += 2;
    }
    if (token < gemm.tokens) block_tile<I, T, 1>(gemm, rows, row, valid, token);
  }
}

// -- bf16 weights by split activations

// Four rows (of which `valid` are stored) by N tokens (of which `tokens` are) from `token` on.
template <class I, int N>
void split_tile(const Gemm& gemm, int64_t row, int64_t token) {
  const int64_t valid = gemm.rows - row < 4 ? gemm.rows - row : 4;
  const int64_t tokens = gemm.tokens - token < N ? gemm.tokens - token : N;
  const int64_t blocks = (gemm.cols + 31) / 32;
  const uint8_t* rows[4];
  const SplitBlock* x[N];
  float results[4][N];
  for (int r = 0; r < 4; ++r) rows[r] = gemm.weights + (row + (r < valid ? r : 0)) * gemm.cols * 2;
  for (int n = 0; n < N; ++n) x[n] = gemm.split + (token + (n < tokens ? n : 0)) * blocks;
  I::template split_dots<N>(rows, x, gemm.cols, results);
  for (int64_t n = 0; n < tokens; ++n) {
    float* out = gemm.out + (token + n) * gemm.out_stride + row;
    for (int64_t r = 0; r < valid; ++r) {
      out[r] = results[r][n] + (gemm.bias == nullptr ? 0.0f : gemm.bias[row + r]);
    }
  }
}

template <class I>
void gemm_split(const Gemm& gemm) {
  for (int64_t row = 0; row < gemm.rows; row += 4) {
    int64_t token = 0;
    for (; token + 2 < gemm.tokens; token += 4) split_tile<I, 4>(gemm, row, token);
    if (token < gemm.tokens) split_tile<I, 2>(gemm, row, token);
  }
}

inline uint16_t to_bf16(float value) {  // to nearest even; NaN stays
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

template <class I>
void split_blocks(SplitBlock* out, const float* x, int64_t width) {
  for (int64_t i = 0; i < width; i += 32, ++out) {
    for (int64_t k = 0; k < 32; ++k) {
      const float value = i + k < width ? x[i + k] : 0.0f;
      out->high[k] = to_bf16(value);
      const uint32_t bits = static_cast<uint32_t>(out->high[k]) << 16;
      float high;
      __builtin_memcpy(&high, &bits, 4);
      out->low[k] = to_bf16(value - high);
    }
  }
}

template <class I>
void gemm_bf16(const Gemm& gemm) {
  if constexpr (I::kSplit) {
    gemm_split<I>(gemm);
  } else {
    gemm_plain<I, PlainBf16<I>>(gemm);
  }
}

template <class I>
void gemm_any(const Gemm& gemm) {
  switch (gemm.type) {
    case DType::F32:
      return gemm_plain<I, PlainF32<I>>(gemm);
    case DType::F16:
      return gemm_plain<I, PlainF16<I>>(gemm);
    case DType::BF16:
      return gemm_bf16<I>(gemm);
    case DType::F8_E4M3:
      return gemm_plain<I, PlainF8<I>>(gemm);
    case DType::Q4_0:
      return gemm_blocks<I, Q4_0<I>>(gemm);
    case DType::Q4_1:
      return gemm_blocks<I, Q4_1<I>>(gemm);
    case DType::Q5_0:
      return gemm_blocks<I, Q5_0<I>>(gemm);
    case DType::Q5_1:
      return gemm_blocks<I, Q5_1<I>>(gemm);
    case DType::Q8_0:
      return gemm_blocks<I, Q8_0<I>>(gemm);
    case DType::Q2_K:
      return gemm_blocks<I, Q2_K<I>>(gemm);
    case DType::Q3_K:
      return gemm_blocks<I, Q3_K<I>>(gemm);
    case DType::Q4_K:
      return gemm_blocks<I, Q4_K<I>>(gemm);
    case DType::Q5_K:
      return gemm_blocks<I, Q5_K<I>>(gemm);
    case DType::Q6_K:
      return gemm_blocks<I, Q6_K<I>>(gemm);
    case DType::IQ4_NL:
      return gemm_blocks<I, Iq4Nl<I>>(gemm);
    case DType::MXFP4:
      return gemm_blocks<I, Mxfp4<I>>(gemm);
    case DType::NF4:
      return gemm_blocks<I, FloatTable<I, DType::NF4>>(gemm);
    case DType::FP4:
      return gemm_blocks<I, FloatTable<I, DType::FP4>>(gemm);
    case DType::Q4_Z:
      return gemm_blocks<I, Q4_Z<I>>(gemm);
    case DType::F4_16:
      return gemm_blocks<I, F4_16<I>>(gemm);
    case DType::G4_NL:
      return gemm_blocks<I, Grid4<I, DType::G4_NL>>(gemm);
    case DType::G4_2:
      return gemm_blocks<I, Grid4<I, DType::G4_2>>(gemm);
    case DType::G4_3X:
      return gemm_blocks<I, Grid4<I, DType::G4_3X>>(gemm);
    case DType::G4_3S:
      return gemm_blocks<I, Grid4<I, DType::G4_3S>>(gemm);
    default:
      break;
  }
  __builtin_trap();  // the back-end checks the type
}

// -- activations to int8

template <class I>
void quantize_blocks(ActivationBlock* out, const float* x, int64_t blocks) {
  // Below this the reciprocal would overflow; such a block counts as zero.
  constexpr float kSmallest = 1e-36f;
  for (int64_t b = 0; b < blocks; ++b, x += 32, ++out) {
    auto largest = I::set1(0.0f), poison = I::set1(0.0f);
    for (int i = 0; i < 32; i += I::kWidth) {
      const auto value = I::load(x + i);
      poison = I::add(poison, I::sub(value, value));  // 0, or NaN from a value that is not finite
      largest = I::max(I::max(value, I::sub(I::set1(0.0f), value)), largest);
    }
    if (const float nan = I::reduce_add(poison); nan != 0.0f) {
      *out = {{}, nan, nan, {nan, nan}};  // no integer stands for it: the GEMMs must not be finite either
      continue;
    }
    const float most = I::reduce_max(largest);
    const float inverse = most < kSmallest ? 0.0f : 127.0f / most;
    float rounded[32];
    for (int i = 0; i < 32; i += I::kWidth) {
      I::store(rounded + i, I::round(I::mul(I::load(x + i), I::set1(inverse))));
    }
    int sums[2] = {0, 0};
    for (int i = 0; i < 32; ++i) {
      const int quant = static_cast<int>(rounded[i]);
      out->quants[i] = static_cast<int8_t>(quant);
      sums[i / 16] += quant;
    }
    out->scale = most < kSmallest ? 0.0f : most / 127.0f;
    out->sum = out->scale * static_cast<float>(sums[0] + sums[1]);
    for (int half = 0; half < 2; ++half) out->half_sums[half] = out->scale * static_cast<float>(sums[half]);
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu

// The Hadamard transform of a row's blocks. Included by the level files only. Each stage adds and subtracts neighbours and
// puts sums before differences, which makes all stages the same loop over whole vectors, and after the last one the order is
// that of the matrix. The sums are those of butterflies of 1, 2, 4, ... columns, in the same order on every level.
#pragma once

#include <cstdint>

namespace sluice::kernels::cpu {
namespace {

template <int64_t Block>
void rotate_stage(float* __restrict to, const float* __restrict from) {
  for (int64_t i = 0; i < Block / 2; ++i) {
    const float a = from[2 * i], b = from[2 * i + 1];
    to[i] = a + b;
    to[i + Block / 2] = a - b;
  }
}

template <int64_t Block>
void rotate_block(float* out, const float* x, float factor) {
  alignas(64) float stages[2][Block];
  const float* from = x;
  int next = 0;
#pragma GCC unroll 8
  for (int64_t size = 1; size < Block; size *= 2, next = 1 - next) {
    rotate_stage<Block>(stages[next], from);
    from = stages[next];
  }
  for (int64_t i = 0; i < Block; ++i) out[i] = from[i] * factor;
}

// Any power of two.
inline void rotate_wide(float* out, const float* x, int64_t block, float factor) {
  if (out != x) __builtin_memcpy(out, x, static_cast<size_t>(block) * sizeof(float));
  for (int64_t half = 1; half < block; half *= 2) {
    for (int64_t first = 0; first < block; first += 2 * half) {
      for (int64_t i = first; i < first + half; ++i) {
        const float a = out[i], b = out[i + half];
        out[i] = a + b;
        out[i + half] = a - b;
      }
    }
  }
  for (int64_t i = 0; i < block; ++i) out[i] *= factor;
}

template <class I>
void rotate(float* out, const float* x, int64_t width, int64_t block) {
  const float factor = 1.0f / __builtin_sqrtf(static_cast<float>(block));
  for (int64_t at = 0; at < width; at += block) {
    switch (block) {
      case 16:
        rotate_block<16>(out + at, x + at, factor);
        break;
      case 32:
        rotate_block<32>(out + at, x + at, factor);
        break;
      case 64:
        rotate_block<64>(out + at, x + at, factor);
        break;
      case 128:
        rotate_block<128>(out + at, x + at, factor);
        break;
      default:
        rotate_wide(out + at, x + at, block, factor);
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu

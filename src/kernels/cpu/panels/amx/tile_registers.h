// Matrix tiles of bf16: the tile instructions, the same in plain loops, and floats as sums of two bf16. Included by the files
// that are compiled for AMX only.
//
// Tiles 0 to 3 are sums [rows][width] of f32; 4 and 5 the left factors [rows][32]; 6 and 7 the right ones, 16 pairs of rows
// by `width` columns. A multiplication adds the even and the odd of 32 products up in two chains of fused multiply-adds
// from zero, and adds both to the sum.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>

#include "kernels/cpu/panels/amx/tile_config.h"

namespace sluice::kernels::cpu {
namespace {

using TileF = __m512;

// Two vectors of floats rounded to the nearest bf16, ties to even, the first in the low half.
struct AmxWords {
  static __m512i rounded(TileF first, TileF second) {
    return std::bit_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
  }
};

// The same without the instruction, which takes subnormal numbers as zeros.
struct ModelWords {
  static __m256i half(TileF value) {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i round = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    round = _mm512_mask_or_epi32(round, nan, bits, _mm512_set1_epi32(0x400000));
    const __mmask16 tiny = _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(0x7f800000));
    round = _mm512_mask_and_epi32(round, tiny, bits, _mm512_set1_epi32(INT32_MIN));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(round, 16));
  }
  static __m512i rounded(TileF first, TileF second) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(half(first)), half(second), 1);
  }
};

// The instructions take the number of a tile as a literal, and do not tell the compiler what
// they read.
class AmxTiles {
 public:
  AmxTiles(int rows, int width) {
    TileConfig config;
    for (int tile = 0; tile < 8; ++tile) {
      config.rows[tile] = static_cast<uint8_t>(tile < 6 ? rows : 16);
      config.row_bytes[tile] = static_cast<uint16_t>(tile == 4 || tile == 5 ? 64 : 4 * width);
    }
    config.load();
  }
  ~AmxTiles() { asm volatile("tilerelease"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int Tile>
  [[gnu::always_inline]] void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(Tile));
  }
  template <int Tile>
  [[gnu::always_inline]] void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(Tile) : "memory");
  }
  template <int Tile>
  [[gnu::always_inline]] void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(Tile) : "memory");
  }
  template <int Sum, int Left, int Right>
  [[gnu::always_inline]] void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sum), "i"(Left), "i"(Right));
  }
};

// The tile instructions in plain loops.
class ModelTiles {
 public:
  ModelTiles(int rows, int width) : rows_(rows), width_(width) {}
  template <int Tile>
  void zero() {
    __builtin_memset(tiles_[Tile], 0, sizeof tiles_[Tile]);
  }
  template <int Tile>
  void load(const void* from, int64_t stride) {
    for (int row = 0; row < rows_of(Tile); ++row)
      __builtin_memcpy(tiles_[Tile][row], static_cast<const char*>(from) + row * stride, bytes(Tile));
  }
  template <int Tile>
  void store(void* to, int64_t stride) const {
    for (int row = 0; row < rows_of(Tile); ++row)
      __builtin_memcpy(static_cast<char*>(to) + row * stride, tiles_[Tile][row], bytes(Tile));
  }
  template <int Sum, int Left, int Right>
  void dot() {
    for (int row = 0; row < rows_; ++row) {
      float even[16] = {}, odd[16] = {};
      for (int pair = 0; pair < 16; ++pair) {
        const float first = low_float(tiles_[Left][row][pair]), second = high_float(tiles_[Left][row][pair]);
        for (int column = 0; column < 16; ++column) {
          even[column] = __builtin_fmaf(first, low_float(tiles_[Right][pair][column]), even[column]);
          odd[column] = __builtin_fmaf(second, high_float(tiles_[Right][pair][column]), odd[column]);
        }
      }
      for (int column = 0; column < 16; ++column) {
        const float sum = std::bit_cast<float>(tiles_[Sum][row][column]) + (even[column] + odd[column]);
        tiles_[Sum][row][column] = std::bit_cast<uint32_t>(sum);
      }
    }
  }

 private:
  int rows_of(int tile) const { return tile < 6 ? rows_ : 16; }
  size_t bytes(int tile) const { return tile == 4 || tile == 5 ? 64 : static_cast<size_t>(4 * width_); }
  static float low_float(uint32_t pair) { return std::bit_cast<float>(pair << 16); }
  static float high_float(uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }

  int rows_, width_;
  uint32_t tiles_[8][16][16] = {};
};

// Up to 32 floats, those from `begin` to `end`; the rest is zero and not read.
struct TileFloats {
  TileF first, second;

  TileFloats(const float* x, int64_t end, int64_t begin = 0)
      : first(_mm512_maskz_loadu_ps(mask(end) & ~mask(begin), x)),
        second(_mm512_maskz_loadu_ps(mask(end - 16) & ~mask(begin - 16), x + 16)) {}
  static __mmask16 mask(int64_t count) {
    return static_cast<__mmask16>(count >= 16 ? 0xffff : count <= 0 ? 0 : (1 << count) - 1);
  }
  // What rounding lost.
  template <class W>
  __m512i low(__m512i high) const {
    const auto wide = [](__m256i words) {
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
    };
    return W::rounded(_mm512_sub_ps(first, wide(_mm512_castsi512_si256(high))),
                      _mm512_sub_ps(second, wide(_mm512_extracti64x4_epi64(high, 1))));
  }
};

}  // namespace
}  // namespace sluice::kernels::cpu

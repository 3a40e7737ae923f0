// GEMMs over panels in rows with AMX tiles of bf16, and the same over a model of the tile instructions.
#include <bit>

#include "kernels/cpu/panels/gemm_tiles.h"

namespace sluice::kernels::cpu {

namespace {

using TileF = PanelAvx512Vnni::F;

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

// The layout that LDTILECFG reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// For `width` tokens in a tile. The instructions take the number of a tile as a literal, and do not tell the compiler what
// they read.
class AmxTiles {
 public:
  explicit AmxTiles(int width) {
    TileConfig config;
    for (int tile = 0; tile < 8; ++tile) {
      config.rows[tile] = 16;
      config.row_bytes[tile] = static_cast<uint16_t>(tile == 4 || tile == 5 ? 64 : 4 * width);
    }
    asm volatile("ldtilecfg %0" : : "m"(config));
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
  template <int Sum, int Weights, int X>
  [[gnu::always_inline]] void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sum), "i"(Weights), "i"(X));
  }
};

// The tile instructions in plain loops.
class ModelTiles {
 public:
  explicit ModelTiles(int width) : width_(width) {}
  template <int Tile>
  void zero() {
    __builtin_memset(tiles_[Tile], 0, sizeof tiles_[Tile]);
  }
  template <int Tile>
  void load(const void* from, int64_t stride) {
    for (int row = 0; row < 16; ++row)
      __builtin_memcpy(tiles_[Tile][row], static_cast<const char*>(from) + row * stride, bytes(Tile));
  }
  template <int Tile>
  void store(void* to, int64_t stride) const {
    for (int row = 0; row < 16; ++row)
      __builtin_memcpy(static_cast<char*>(to) + row * stride, tiles_[Tile][row], bytes(Tile));
  }
  template <int Sum, int Weights, int X>
  void dot() {
    for (int row = 0; row < 16; ++row) {
      float even[16] = {}, odd[16] = {};
      for (int pair = 0; pair < 16; ++pair) {
        const float first = low_float(tiles_[Weights][row][pair]),
                    second = high_float(tiles_[Weights][row][pair]);
        for (int token = 0; token < 16; ++token) {
          even[token] = __builtin_fmaf(first, low_float(tiles_[X][pair][token]), even[token]);
          odd[token] = __builtin_fmaf(second, high_float(tiles_[X][pair][token]), odd[token]);
        }
      }
      for (int token = 0; token < 16; ++token) {
        const float sum = std::bit_cast<float>(tiles_[Sum][row][token]) + (even[token] + odd[token]);
        tiles_[Sum][row][token] = std::bit_cast<uint32_t>(sum);
      }
    }
  }

 private:
  size_t bytes(int tile) const { return tile == 4 || tile == 5 ? 64 : static_cast<size_t>(4 * width_); }
  static float low_float(uint32_t pair) { return std::bit_cast<float>(pair << 16); }
  static float high_float(uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }

  int width_;
  uint32_t tiles_[8][16][16] = {};
};

// Up to 32 columns of one token, the rest zeros.
struct TokenColumns {
  TileF first, second;

  TokenColumns(const float* x, int64_t count)
      : first(_mm512_maskz_loadu_ps(mask(count), x)),
        second(_mm512_maskz_loadu_ps(mask(count - 16), x + 16)) {}
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

// Rows of pairs by tokens: 16 x 16 words of 32 bits, of which `width` columns are stored.
inline void store_transposed(uint16_t* to, TileF (&square)[16], int64_t width) {
  if (width == 1) return _mm512_storeu_ps(to, square[0]);
  PanelAvx512Vnni::transpose(square);
#pragma GCC unroll 16
  for (int pair = 0; pair < 16; ++pair)
    _mm512_mask_storeu_ps(to + pair * 2 * width, TokenColumns::mask(width), square[pair]);
}

template <class W>
void fill_tiles(const TileFill& fill) {
  for (int64_t piece = fill.begin; piece < fill.end; ++piece) {
    TileF high[16], low[16];
#pragma GCC unroll 16
    for (int token = 0; token < 16; ++token) {
      const bool valid = token < fill.tokens;
      const TokenColumns columns(fill.x + (valid ? token * fill.stride : 0) + 32 * piece,
                                 valid ? fill.cols - 32 * piece : 0);
      const __m512i words = W::rounded(columns.first, columns.second);
      high[token] = _mm512_castsi512_ps(words);
      low[token] = _mm512_castsi512_ps(columns.template low<W>(words));
    }
    const int64_t at = piece * 32 * fill.width;
    store_transposed(fill.to.high + at, high, fill.width);
    store_transposed(fill.to.low + at, low, fill.width);
  }
}

}  // namespace

const TileKernels& amx_tiles() {
  static constexpr TileKernels kKernels{gemm_by_tiles<AmxTiles>, fill_tiles<AmxWords>};
  return kKernels;
}

const TileKernels& amx_model_tiles() {
  static constexpr TileKernels kKernels{gemm_by_tiles<ModelTiles>, fill_tiles<ModelWords>};
  return kKernels;
}

}  // namespace sluice::kernels::cpu

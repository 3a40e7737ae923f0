// GEMMs over panels with AMX tiles of int8, and the same over a model of the tile instructions.
#include "kernels/cpu/panels/amx/gemm_amx.h"
#include "kernels/cpu/panels/amx/tile_config.h"
#include "kernels/cpu/panels/quantize.h"
#include "kernels/cpu/panels/words_avx512_vnni.h"

namespace sluice::kernels::cpu {

namespace {

// Tokens. On two cores of a Xeon with AMX, weights in memory: of VNNI's time Q4_1 takes 0.84 to 0.93 with 32 tokens, about 1
// with 24, 1.1 to 1.4 with 17 and 20, 0.86 to 0.92 with 16, 1 with 13, 1.1 to 1.2 with 9. Other types are within 0.1 of it.
constexpr int64_t kTilesFrom = 24;
constexpr int64_t kOneTileFrom = 14;
constexpr int64_t kModelledFrom = 5;

struct PanelAmx : PanelAvx512Vnni {
  static constexpr bool kSignedCodes = true;
  static __mmask16 first_rows(int64_t count) {
    return static_cast<__mmask16>(count >= kWidth ? 0xffff : (1 << count) - 1);
  }
  static F load_part(const float* from, int64_t count) {
    return _mm512_maskz_loadu_ps(first_rows(count), from);
  }
  static void store_part(float* to, F value, int64_t count) {
    _mm512_mask_storeu_ps(to, first_rows(count), value);
  }
  static S panel_sums(const int32_t (&sums)[kPanelRows]) { return _mm512_load_si512(sums); }
};

// Tiles 0 and 1: sums; 6: activations; 7: codes, both of 32 columns or of 16.
class AmxTiles {
 public:
  explicit AmxTiles(bool halves) {
    TileConfig config;
    for (int tile = 0; tile < 8; ++tile) {
      config.rows[tile] = kTileTokens;
      config.row_bytes[tile] = 64;
    }
    config.row_bytes[6] = halves ? 16 : 32;
    config.rows[7] = halves ? 4 : 8;
    config.load();
  }
  ~AmxTiles() { _tile_release(); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  // The instructions take the number of a tile as a literal.
  template <int Half, int Columns>
  [[gnu::always_inline]] void multiply(int32_t (&out)[kTileTokens][kPanelRows], const int8_t (*x)[32],
                                       int first, const uint8_t* codes) {
    asm volatile(
        "tilezero %%tmm%c5\n"
        "tileloadd (%0,%1,1), %%tmm6\n"
        "tileloadd (%2,%3,1), %%tmm7\n"
        "tdpbssd %%tmm7, %%tmm6, %%tmm%c5\n"
        "tilestored %%tmm%c5, (%4,%3,1)\n"
        :
        : "r"(x[0] + first), "r"(int64_t{32}), "r"(codes), "r"(int64_t{64}), "r"(&out), "i"(Half)
        : "memory");
  }
};

// The numbers of quantize_for_panels at one token's place in `count` tiles.
void quantize_into_tiles(ActivationTile* out, int64_t place, const float* x, int64_t count) {
  constexpr uint32_t kInfinity = 0x7f800000;
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  for (int64_t b = 0; b < count; ++b, x += 32, ++out) {
    const __m512 halves[2] = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
    // Bits of floats without their sign are in the order of the floats, and what is not finite comes last.
    const uint32_t bits = _mm512_reduce_max_epu32(
        _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(halves[0]), magnitude),
                         _mm512_and_si512(_mm512_castps_si512(halves[1]), magnitude)));
    if (bits >= kInfinity) {
      constexpr float kNan = __builtin_nanf("");
      __builtin_memset(out->quants[place], 0, sizeof out->quants[place]);
      out->scale[place] = out->sum[place] = out->half_sums[0][place] = out->half_sums[1][place] = kNan;
      continue;
    }
    const float most = __builtin_bit_cast(float, bits);
    const float scale = most < kSmallestBlock ? 0.0f : most / 127.0f;
    const __m512 inverse = _mm512_set1_ps(most < kSmallestBlock ? 0.0f : 127.0f / most);
    __m128i quants[2];
    for (int half = 0; half < 2; ++half) {
      quants[half] = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(halves[half], inverse)));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out->quants[place] + 16 * half), quants[half]);
    }
    // Sums of four, then of all sixteen of a half in each of its lanes.
    __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1),
                                       _mm256_set_m128i(quants[1], quants[0]));
    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0b10110001));
    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0b01001110));
    const int low = _mm256_cvtsi256_si32(sums);
    const int high = _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1));
    out->scale[place] = scale;
    out->sum[place] = scale * static_cast<float>(low + high);
    out->half_sums[0][place] = scale * static_cast<float>(low);
    out->half_sums[1][place] = scale * static_cast<float>(high);
  }
}

}  // namespace

const PanelKernels& amx_panels() {
  static const PanelKernels kKernels{.gemm = gemm_panels_amx<PanelAmx, AmxTiles>,
                                     .quantize = quantize_for_panels<PanelAmx>,
                                     .quantize_tiles = quantize_into_tiles,
                                     .tiles_from = kTilesFrom,
                                     .one_tile_from = kOneTileFrom,
                                     .words = &amx_tiles(),
                                     .columns = &avx512_columns()};
  return kKernels;
}

const PanelKernels& amx_model_panels() {
  static const PanelKernels kKernels{.gemm = gemm_panels_amx<PanelAmx, ModelTiles>,
                                     .quantize = quantize_for_panels<PanelAmx>,
                                     .quantize_tiles = quantize_into_tiles,
                                     .tiles_from = kModelledFrom,
                                     .words = &amx_model_tiles(),
                                     .columns = &avx512_columns()};
  return kKernels;
}

}  // namespace sluice::kernels::cpu

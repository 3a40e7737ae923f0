// The words of panels with AVX-512 VNNI.
#pragma once

#include "kernels/cpu/panels/words_avx512.h"
#include "kernels/cpu/simd/vec_avx512_vnni.h"

namespace sluice::kernels::cpu {
namespace {

struct PanelAvx512Vnni : PanelWords512<Avx512Vnni> {
  static constexpr bool kWideCodes = true;  // panel_dot takes codes of eight bits
  static constexpr int64_t kFewTokens = 8;
  static constexpr int kChunkTileTokens = 6;
  // Two cores of a Xeon with AMX read 5 to 20 % more in a second than with fetches into the first cache, at any distance.
  static constexpr int64_t kSecondCachePrefetch = 6144;
  static S panel_dot(S sum, P codes, P x) { return _mm512_dpbusd_epi32(sum, codes, x); }
};

}  // namespace
}  // namespace sluice::kernels::cpu

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
  // Two cores of a Xeon with AMX read 5 to 20 % more in a second than with fetches into the first cache alone, at any distance, and
  // Q4_0 for one token 10 % more than with fetches into the second one alone.
  static constexpr int64_t kSecondCachePrefetch = 6144;
  static constexpr int64_t kFirstCachePrefetch = 2048;
  static S panel_dot(S sum, P codes, P x) { return _mm512_dpbusd_epi32(sum, codes, x); }
  static constexpr bool kTwoChains = true;
  static S panel_add(S a, S b) { return _mm512_add_epi32(a, b); }
  // By activations [4 Q, 4 Q + 4), which the instruction broadcasts. The compiler would load them by an instruction of their own.
  template <int Q>
  [[gnu::always_inline]] static S panel_dot_lane(S sum, P codes, const int8_t* x) {
    using Four [[gnu::may_alias]] = int32_t;
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(codes), "m"(reinterpret_cast<const Four*>(x)[Q]));
    return sum;
  }
};

}  // namespace
}  // namespace sluice::kernels::cpu

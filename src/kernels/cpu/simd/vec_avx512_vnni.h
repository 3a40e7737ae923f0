// AVX-512 with VNNI: four products of bytes per lane and instruction.
#pragma once

#include "kernels/cpu/simd/vec_avx512.h"

// Needs the words of the header above.
#include "kernels/cpu/attention/byte_rows.h"

namespace sluice::kernels::cpu {
namespace {

struct Avx512Vnni : Avx512 {
  static __m256i dot32(I8x32 a, I8x32 b) {
    return _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_abs_epi8(a), _mm256_sign_epi8(b, a));
  }
  template <int N>
  static void dots(const I8x32 (&weights)[4], const ActivationBlock* const (&x)[N], I4 (&sums)[N]) {
    dots_by<Avx512Vnni, N>(weights, x, sums);
  }
  template <int N>
  static void scaled_dots(const I8x32 (&weights)[4], const HalfScales& scales,
                          const ActivationBlock* const (&x)[N], I4 (&sums)[N]) {
    scaled_dots_by<Avx512Vnni, N>(weights, scales, x, sums);
  }

  static constexpr int64_t kWidestByteRow = kWidestBytes, kMostByteRows = kMostByteKeys;
  static void byte_scores(float* out, int64_t stride, const float* const* queries, int64_t query_count,
                          const KvRows& keys) {
    cpu::byte_scores<Avx512>(out, stride, queries, query_count, keys);
  }
  static void byte_weighted_sum(const WeightedSum& sum) { cpu::byte_weighted_sum<Avx512>(sum); }
};

}  // namespace
}  // namespace sluice::kernels::cpu

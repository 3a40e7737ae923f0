// Activations to int8 for panels: the rounding of gemm.h's quantize_blocks. Included by the files panels_NAME.cpp only.
#pragma once

#include <cstdint>

#include "kernels/cpu/panels/kernels.h"

namespace sluice::kernels::cpu {
namespace {

// Sixteen activations times `inverse`, rounded to the nearest even, as bytes; gives their sum. Words that have
// instructions for it do it themselves.
template <class I>
int round_to_bytes(int8_t* out, const float* x, typename I::F inverse) {
  if constexpr (requires { I::round_to_bytes(out, x, inverse); }) {
    return I::round_to_bytes(out, x, inverse);
  } else {
    float rounded[16];
    for (int i = 0; i < 16; i += I::kWidth) I::store(rounded + i, I::round(I::mul(I::load(x + i), inverse)));
    int sum = 0;
    for (int i = 0; i < 16; ++i) {
      const int quant = static_cast<int>(rounded[i]);
      out[i] = static_cast<int8_t>(quant);
      sum += quant;
    }
    return sum;
  }
}

// Below this the reciprocal of a block's largest value would overflow; such a block counts as zero.
constexpr float kSmallestBlock = 1e-36f;

template <class I>
void quantize_for_panels(PanelActivations* out, const float* x, int64_t count) {
  for (int64_t b = 0; b < count; ++b, x += 32, ++out) {
    auto largest = I::set1(0.0f), poison = I::set1(0.0f);
    for (int i = 0; i < 32; i += I::kWidth) {
      const auto value = I::load(x + i);
      poison = I::add(poison, I::sub(value, value));  // 0, or NaN from a value that is not finite
      largest = I::max(I::max(value, I::sub(I::set1(0.0f), value)), largest);
    }
    if (const float nan = I::reduce_add(poison); nan != 0.0f) {
      *out = {{},         nan, nan,
              {nan, nan}, 0,   {0, 0}};  // no integer stands for it: the sums must not be finite either
      continue;
    }
    const float most = I::reduce_max(largest);
    const auto inverse = I::set1(most < kSmallestBlock ? 0.0f : 127.0f / most);
    int sums[2];
    for (int half = 0; half < 2; ++half)
      sums[half] = round_to_bytes<I>(out->quants + 16 * half, x + 16 * half, inverse);
    out->scale = most < kSmallestBlock ? 0.0f : most / 127.0f;
    out->sum = out->scale * static_cast<float>(sums[0] + sums[1]);
    out->negated_sum = -(sums[0] + sums[1]);
    for (int half = 0; half < 2; ++half) {
      out->half_sums[half] = out->scale * static_cast<float>(sums[half]);
      out->negated_halves[half] = -sums[half];
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu

// The shared kernels over the vector words of one level. Included by the level files only.
#pragma once

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/rotate.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/simd/kernel_table.h"

namespace sluice::kernels::cpu {
namespace {

template <class I>
constexpr KernelTable make_table() {
  return {.gemm = gemm_any<I>,
          .quantize = quantize_blocks<I>,
          .split = I::kSplit ? split_blocks<I> : nullptr,
          .rms_norm = rms_norm<I>,
          .layer_norm = layer_norm<I>,
          .add_scaled = add_scaled<I>,
          .multiply = multiply<I>,
          .softcap = softcap<I>,
          .clamp = clamp<I>,
          .activate = activate<I>,
          .gate = gate<I>,
          .rope = rope<I>,
          .rotate = rotate<I>,
          .attention_rows = 32,
          .attention_fetches = !has_lanes<I>(),
          .store_kv = store_kv<I>,
          .scores = scores<I>,
          .softmax = softmax<I>,
          .weighted_sum = weighted_sum<I>,
          .blend = blend<I>};
}

}  // namespace
}  // namespace sluice::kernels::cpu

// Tokens from logits.
#pragma once

#include "kernels/cuda/common/params.h"

namespace sluice::kernels::cuda {

struct ArgmaxParams {
  View x;
  int32_t* ids;
  unsigned long long* keys;  // [n] zero before and after
};
void launch_argmax(const ArgmaxParams&, Stream);

// One token per row of logits; kernels/sample.h has the structs.
struct SampleParams {
  View logits;
  const void* rows;       // SampleArgs [n]
  void* edits;            // LogitAdjustment, of all rows; what they hold afterwards is undefined
  const uint32_t* masks;  // [.., mask_words(logits.dim)], of all rows
  void* out;              // SampledToken [n]
  int32_t* slots;
};
void launch_sample(const SampleParams&, Stream);

}  // namespace sluice::kernels::cuda

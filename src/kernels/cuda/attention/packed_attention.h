// Attention of prompts with the bits of decode_attention.cu.
#pragma once

#include "kernels/cuda/attention/attention_params.h"

namespace sluice::kernels::cuda {

// Several neighbouring tokens of a sequence at a time, each with the bits that launch_one gives it alone where its plan
// leaves heads whole. A pack is {first token, tokens, position of the first, first entry of its row of the block table}.
struct PackedAttentionParams {
  AttentionParams attention;
  const int32_t* packs;  // device [count, 4], at a multiple of 16 bytes
  int64_t count;
};
// Of one token; then launch_one takes it too.
bool packed_fits(const AttentionParams&);
// Most tokens of a pack.
int64_t packed_tokens(const AttentionParams&);
// REQUIRES: packed_fits() of a token of it.
void launch_packed(const PackedAttentionParams&, Stream);

}  // namespace sluice::kernels::cuda

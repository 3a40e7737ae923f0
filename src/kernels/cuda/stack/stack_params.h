// All layers of a plain dense decoder in one launch, for steps of a few single tokens.
#pragma once

#include "kernels/cuda/attention/attention_params.h"

namespace sluice::kernels::cuda {

inline constexpr int kStackTokens = 8, kStackLayers = 64;
// Widest input whose part of a warp stays in registers: of the norms, and of the output matrix.
inline constexpr int64_t kStackWidth = 4096;

// Matrices are plain bf16 rows, one behind the other.
struct StackLayer {
  const void* qkv;  // [(heads + 2 kv_heads) * head_dim, dim]
  const void* out;  // [dim, heads * head_dim]
  const void* gate_up;
  const void* down;  // [dim, inner]
  const float *mixer_gain, *ffn_gain;
  const float *q_gain, *k_gain;  // [head_dim] or null
  void *keys, *values;
};

// Where a set of the workspace holds what: offsets in words of two bf16. Rows of what one stage hands to the next, as many as
// kStackTokens, and parts of attention.
struct StackLayout {
  int32_t qkv, attended, middle, inner, end, parts;
  int32_t part_words;
  int32_t words;  // of a set
};

struct StackParams {
  StackLayer layers[kStackLayers];
  View x;  // in and out
  int32_t count, tokens, heads, kv_heads, head_dim, inner;
  float eps, scale;
  const float* angles;  // [tokens, head_dim / 2, 2]
  TableView table;
  int32_t block_shift;                // a block has 1 << block_shift slots
  int64_t stride_block, stride_head;  // of keys and values, in elements
  StackLayout layout;
  // Three sets of layout.words, which hold kStackVoid wherever nothing was handed over; then the number of the set that is
  // next. Kept from launch to launch.
  uint32_t* workspace;
};
inline constexpr uint32_t kStackVoid = 0xffffffffu;

StackLayout stack_layout(const StackParams&, int processors);
// Words of both sets and the number behind them.
int64_t stack_workspace_words(const StackLayout&);
// Whether the kernel takes the shape; layers' memory is for the caller to look at.
bool stack_fits(const StackParams&, int processors);
void launch_stack(const StackParams&, Stream);

}  // namespace sluice::kernels::cuda

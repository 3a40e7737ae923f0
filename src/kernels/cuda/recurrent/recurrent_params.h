// Layers that keep a state of each sequence: convolutions, the gated delta rule and state-space scans.
#pragma once

#include "kernels/cuda/common/params.h"

namespace sluice::kernels::cuda {

// kernels::StateBatch on the device, and the states: [slots, ...], f32, strides in elements.
struct StatesView {
  float* data;
  int64_t stride;  // from slot to slot
  int32_t sequences;
  const int32_t* query_begin;  // [sequences + 1]
  const int32_t* from;         // [sequences]; -1: zeros
  const int32_t* save_begin;   // [sequences + 1]
  const int32_t* saves;        // [saves, 2]: tokens, slot
};

struct MultiplyParams {
  View out, a, b;  // b.stride_n 0: one row for all; b may be F32 whatever the others are
};
void launch_multiply(const MultiplyParams&, Stream);

struct ConvParams {
  View out, x;          // [n, channels]
  const float* kernel;  // [taps, channels]
  const float* bias;    // [channels] or null
  StatesView states;    // [taps - 1, channels]
  int32_t taps, silu;
};
inline constexpr int kMostTaps = 16;
void launch_conv(const ConvParams&, Stream);

// Tokens of a chunk of launch_delta_chunk; a chunk also ends where a state is saved and with its sequence.
inline constexpr int32_t kDeltaChunk = 64;
inline constexpr int32_t kDeltaChunkKeys = 128;   // the largest key_dim
inline constexpr int32_t kDeltaChunkFewest = 32;  // tokens of a sequence in the mean

struct DeltaParams {
  View out, qkv, decay, beta;
  const float* rate;        // [value_heads]
  const float* decay_bias;  // of the decay's width, or null
  StatesView states;        // [value_heads, key_dim, value_dim]
  int32_t key_heads, value_heads, key_dim, value_dim;
  int32_t tiled, channel_decay;
  int32_t paired;       // set by launch_delta: two columns of a state lie at a multiple of 8 bytes
  int32_t single;       // every sequence has one token
  int32_t fixed_order;  // a token's sums do not depend on where a step began
  float beta_scale, length_eps;
  const int32_t* chunks;  // [chunk_count, 2]: first token and how many; null where sequences are short
  int32_t chunk_count;
  void* scratch;  // of delta_chunk_bytes() where delta_chunk_fits()
};
void launch_delta(const DeltaParams&, Stream);
// Where every sequence has one token, with the bits of launch_delta; and for long steps, with other bits.
bool delta_token_fits(const DeltaParams&);
void launch_delta_token(const DeltaParams&, Stream);
bool delta_chunk_fits(const DeltaParams&);
int64_t delta_chunk_bytes(const DeltaParams&);
void launch_delta_chunk(const DeltaParams&, Stream);
// Its first kernel.
void launch_delta_solve(const DeltaParams&, Stream);

// kernels::GatedDeltaLayer of one token for each sequence, with the bits of its operations one by one.
struct DeltaStepParams {
  DeltaParams delta;         // out: of the layer; qkv: before the convolution
  View gate;                 // [n, value_heads * value_dim]
  float* conv_states;        // slots [taps - 1, channels], at the stride of delta.states
  const float* conv_kernel;  // [taps, channels]
  const float* conv_bias;    // [channels] or null
  const float* gain;         // [value_dim] or null
  float norm_eps;
  int32_t taps, silu, activation;
  int32_t early;  // states and their slots may be read before the kernel in front has ended
};
bool delta_step_fits(const DeltaStepParams&);
// Whether all blocks run at a time.
bool delta_step_at_once(const DeltaStepParams&);
// The same with more, smaller blocks, for few sequences. REQUIRES: delta_step_fits(params).
bool delta_step_few_fits(const DeltaStepParams&);
void launch_delta_step_few(const DeltaStepParams&, Stream);
void launch_delta_step(const DeltaStepParams&, Stream);

// out = gate(g) * norm(x), by root mean squares of heads of `dim` elements side by side.
struct GatedNormParams {
  View out, x, gate;  // [n, heads * dim]
  const float* gain;  // [dim] or null
  int64_t dim;
  float eps;
  int32_t heads, activation;
};
bool gated_norm_fits(const GatedNormParams&);
void launch_gated_norm(const GatedNormParams&, Stream);

struct ScanParams {
  View out, x, b, c, step;
  const float* rate;       // [heads] or [heads, state_dim]
  const float* step_bias;  // [heads] or null
  const float* skip;       // [heads]
  StatesView states;       // [heads, head_dim, state_dim]
  int32_t heads, head_dim, groups, state_dim, rate_per_state;
  float least_step, largest_step;
};
void launch_scan(const ScanParams&, Stream);

}  // namespace sluice::kernels::cuda

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
};
void launch_delta(const DeltaParams&, Stream);
// Where every sequence has one token, with the bits of launch_delta; and for long steps, with other bits.
bool delta_token_fits(const DeltaParams&);
void launch_delta_token(const DeltaParams&, Stream);
bool delta_chunk_fits(const DeltaParams&);
void launch_delta_chunk(const DeltaParams&, Stream);

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

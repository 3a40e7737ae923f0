// What an instruction set offers for layers that keep a state: plain functions over plain memory, one thread each. No
// result depends on how the work was cut.
#pragma once

#include <cstdint>

#include "kernels/recurrent.h"

namespace sluice::kernels::cpu {

// Tokens of one value head of a sequence under the delta rule, one after the other. Strides are in floats, from token to
// token.
struct DeltaRun {
  int64_t tokens;
  int64_t key_dim;
  int64_t value_dim;
  const float *q, *k, *v;
  int64_t qkv_stride;
  const float* decay;  // one, or key_dim of them
  int64_t decay_stride;
  const float* decay_bias;
  bool channel_decay;
  float rate;
  float length_eps;
  const float* beta;
  int64_t beta_stride;
  float beta_scale;
  float* out;
  int64_t out_stride;
  float* state;  // [key_dim, value_dim]
};

// Tokens of one head of a sequence under a state-space scan.
struct ScanRun {
  int64_t tokens;
  int64_t head_dim;
  int64_t state_dim;
  const float* x;
  int64_t x_stride;
  const float *b, *c;
  int64_t b_stride, c_stride;
  const float* step;
  int64_t step_stride;
  float step_bias;
  const float* rate;  // one, or state_dim of them
  bool rate_per_state;
  float skip;
  float least_step, largest_step;
  float* out;
  int64_t out_stride;
  float* state;  // [head_dim, state_dim]
};

struct RecurrentKernels {
  // out = a * b
  void (*hadamard)(float* out, const float* a, const float* b, int64_t width);
  // Channels [begin, end) of one token, from rows[tap]; null rows are zeros.
  void (*convolve)(float* out, const float* const* rows, const CausalConv& conv, int64_t begin, int64_t end);
  void (*delta_run)(const DeltaRun&);
  void (*scan_run)(const ScanRun&);
};

// One function per file recurrent_NAME.cpp, compiled with that level's instructions.
const RecurrentKernels& scalar_recurrent();
const RecurrentKernels& neon_recurrent();
const RecurrentKernels& avx2_recurrent();
const RecurrentKernels& avx512_recurrent();

}  // namespace sluice::kernels::cpu

// Operations of layers that keep one state of each sequence, however long it is: convolutions, the gated delta rule and
// state-space scans. A back-end that computes them is a RecurrentOps too.
//
// A state is a row of a view [slots, elements], f32; a StateBatch says which slots a sequence reads and writes. A
// token's results depend on its sequence's tokens up to it alone: they are the same bits however the tokens are cut into
// steps.
#pragma once

#include <limits>

#include "kernels/backend.h"

namespace sluice::kernels {

// The sequences of a step, and where each finds and leaves its state. Plain host memory.
struct StateBatch {
  struct Save {
    int32_t tokens;  // of the sequence's tokens in the step: the state behind that many ...
    int32_t slot;    // ... goes here
  };
  std::span<const int32_t> query_begin;  // [sequences + 1] first token of each sequence in the step
  std::span<const int32_t> from;         // [sequences] slot of the state that the step starts from; -1: zeros
  std::span<const int32_t> save_begin;   // [sequences + 1] first save of each sequence
  // Of each sequence by ascending tokens, the last behind all of them. A slot may be the one that the sequence starts from,
  // or repeat: what is saved later stays.
  std::span<const Save> saves;

  int sequences() const { return static_cast<int>(from.size()); }
  int64_t tokens() const { return query_begin.empty() ? 0 : query_begin.back(); }
  std::span<const Save> saves_of(int sequence) const {
    const auto begin = static_cast<size_t>(save_begin[static_cast<size_t>(sequence)]);
    const auto end = static_cast<size_t>(save_begin[static_cast<size_t>(sequence) + 1]);
    return saves.subspan(begin, end - begin);
  }
};

// out[i] = silu(bias + Σ_j kernel[j] * x[i - taps + 1 + j]), per channel. The state is the last taps - 1 rows of x.
struct CausalConv {
  TensorView kernel;  // f32 [taps, channels]
  TensorView bias;    // optional, f32 [channels]
  bool silu = false;  // false: without it

  int64_t taps() const { return kernel.dim(0); }
  int64_t channels() const { return kernel.dim(1); }
  int64_t state_elements() const { return (taps() - 1) * channels(); }
};

// Per value head h, with q and k of its key head divided by their lengths, q times key_dim^-1/2,
// d = exp(rate[h] * softplus(decay + decay_bias)) and b = beta_scale * sigmoid(beta):
//   S = d * S;  S += k ⊗ b (v - Sᵀ k);  out = Sᵀ q.
// The state is S of every head, [value_heads, key_dim, value_dim].
struct DeltaRule {
  int key_heads = 0;
  int value_heads = 0;  // a multiple of key_heads
  int key_dim = 0;
  int value_dim = 0;
  bool tiled = false;          // value head h has key head h % key_heads; otherwise neighbours share one
  bool channel_decay = false;  // d is a vector: one decay for each row of S
  float beta_scale = 1.0f;
  float length_eps = 1e-6f;  // added to the squared lengths
  TensorView rate;           // f32 [value_heads], negative
  TensorView decay_bias;     // f32, of the decay's width

  static constexpr int kMaxDim = 512;  // of key_dim and of value_dim
  int64_t state_elements() const { return int64_t{value_heads} * key_dim * value_dim; }
};
struct DeltaInput {
  TensorView qkv;    // [n, key_heads * key_dim * 2 + value_heads * value_dim]: queries, keys, values
  TensorView decay;  // [n, value_heads], or [n, value_heads * key_dim]
  TensorView beta;   // [n, value_heads]
};

// What a layer of the delta rule makes of the products of its input: the convolution, the rule, an rms norm of each head's
// result, and its gate. Of a state the convolution has the first elements, the rule the rest.
struct GatedDeltaLayer {
  CausalConv conv;
  DeltaRule rule;
  TensorView gain;  // optional, f32 [value_dim]
  float norm_eps = 1e-6f;
  Activation gate = Activation::Silu;
};
struct GatedDeltaInput {
  DeltaInput delta;  // qkv before the convolution
  TensorView gate;   // [n, value_heads * value_dim]
};

// Heads side by side, each with the root mean square of its own, and the gates of their elements.
struct GatedNorm {
  TensorView x, gate;  // [n, heads * head_dim]
  int64_t head_dim = 0;
  TensorView gain;  // optional, f32 [head_dim]
  float eps = 1e-6f;
  Activation activation = Activation::Silu;
};

// Per head h of group g = h / (heads / groups), with t = clamp(softplus(step + step_bias)):
//   S[p, s] = exp(t * rate) * S[p, s] + t * x[p] * b[g, s];  out[p] = Σ_s S[p, s] * c[g, s] + skip[h] * x[p].
// The state is S of every head, [heads, head_dim, state_dim].
struct SelectiveScan {
  int heads = 0;
  int head_dim = 0;
  int groups = 1;
  int state_dim = 0;
  TensorView rate;       // f32 [heads] or [heads, state_dim], negative
  TensorView step_bias;  // optional, f32 [heads]
  TensorView skip;       // f32 [heads]
  float least_step = 0.0f;
  float largest_step = std::numeric_limits<float>::infinity();

  static constexpr int kMaxStateDim = 1024;
  bool rate_per_state() const { return rate.elements() != heads; }
  int64_t state_elements() const { return int64_t{heads} * head_dim * state_dim; }
};
struct ScanInput {
  TensorView x;     // [n, heads * head_dim]
  TensorView b, c;  // [n, groups * state_dim]
  TensorView step;  // [n, heads]
};

class RecurrentOps {
 public:
  virtual ~RecurrentOps() = default;

  // out = a * b, element-wise, [n, width]; out may be either. b may have one row for all n, and may be f32.
  virtual void multiply(TensorView out, TensorView a, TensorView b) = 0;
  // out[n, channels]; not x
  virtual void causal_conv(TensorView out, TensorView x, const CausalConv& conv, TensorView states,
                           const StateBatch& batch) = 0;
  // out[n, value_heads * value_dim]; not the input's memory
  virtual void delta_rule(TensorView out, const DeltaInput& input, const DeltaRule& rule, TensorView states,
                          const StateBatch& batch) = 0;
  // out[n, value_heads * value_dim] = gate(input.gate) * norm(delta_rule(causal_conv(input.delta))), each rounded as by the
  // operations that it is composed of: it has their bits. False, and nothing done, where the device has no kernel for the
  // shape or for the step; the caller composes it then.
  virtual bool gated_delta(TensorView /*out*/, const GatedDeltaInput&, const GatedDeltaLayer&,
                           TensorView /*states*/, const StateBatch&) {
    return false;
  }
  // out[n, heads * head_dim] = gate(input.gate) * norm(input.x), with the bits of rms_norm() and gated(); input.x may be lost.
  // False, and nothing done, where the device has no kernel for the shape; the caller composes it then.
  virtual bool gated_norm(TensorView /*out*/, const GatedNorm&) { return false; }
  // out[n, heads * head_dim]; may be x
  virtual void selective_scan(TensorView out, const ScanInput& input, const SelectiveScan& scan,
                              TensorView states, const StateBatch& batch) = 0;
};

// Null where the back-end does not compute them.
RecurrentOps* recurrent_ops(Backend& backend);

}  // namespace sluice::kernels

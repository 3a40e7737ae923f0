// All layers of a plain dense decoder as one operation, for back-ends that have it: models compose them of other operations
// elsewhere. A layer is x += out(attention(norm x)); x += down(silu(gate(norm x)) * up(norm x)), with norms by rms and
// rotated queries and keys.
#pragma once

#include "kernels/backend.h"

namespace sluice::kernels {

struct DenseLayer {
  const Weight* qkv = nullptr;  // rows: all queries, all keys, all values
  const Weight* out = nullptr;
  const Weight* gate_up = nullptr;  // gate rows, then up rows
  const Weight* down = nullptr;
  TensorView mixer_gain, ffn_gain;  // f32 [dim]
  TensorView q_gain, k_gain;        // f32 [head_dim], of an rms norm over each head; empty: there is none
  PagedKv kv;
};

struct LayerStack {
  std::span<const DenseLayer> layers;
  AttentionShape attention;  // of every layer
  int64_t inner = 0;         // numbers between gate and down
  float eps = 1e-6f;         // of all norms
  RopeStyle style = RopeStyle::NeoX;
};

class LayerStackDevice {
 public:
  virtual ~LayerStackDevice() = default;
  // Runs x[n, dim] through all layers, in place, and stores the keys and values. False, and nothing done, where the shape,
  // the types or the number of tokens are not what the device's kernel takes.
  virtual bool run_layers(TensorView x, const LayerStack& stack, TensorView angles,
                          const RaggedBatch& batch) = 0;
};

}  // namespace sluice::kernels

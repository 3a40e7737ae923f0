// How much queries attend to the tokens of a prompt, for back-ends that compute it where the keys lie; elsewhere they are
// read back.
#pragma once

#include <span>

#include "kernels/backend.h"

namespace sluice::kernels {

// A layer of plain attention: softmax(softcap(scale · q · kᵀ)) over all tokens of the prompt.
struct KeyWeightLayer {
  TensorView keys;  // [blocks, block_size, kv_heads, dim]
  std::span<const BlockId> table;
  std::span<const float> queries;  // host [rows, heads, dim]
  int heads = 0;
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: without it
};

class KeyWeightDevice {
 public:
  virtual ~KeyWeightDevice() = default;
  // largest[rows, tokens] = of each token the largest weight that a head of a layer gives it. False, and nothing done, where
  // the device's kernels do not take a layer.
  virtual bool weigh_keys(std::span<float> largest, std::span<const KeyWeightLayer> layers, int rows,
                          int tokens) = 0;
};

}  // namespace sluice::kernels

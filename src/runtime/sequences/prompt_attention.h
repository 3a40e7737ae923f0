// How much rows of a sequence attended to the tokens of its prompt: from their queries, and the keys in KV memory.
#pragma once

#include <span>
#include <vector>

#include "kernels/key_weights.h"
#include "runtime/model_runner.h"

namespace sluice::runtime {

// Layers of plain attention that see the whole prompt count, all others are passed over. Sinks and linear biases of
// positions are left out of the weights.
class PromptAttention {
 public:
  // Unsupported where several ranks compute the model, no layer counts, or the keys are kept as integers.
  static Status check(const ModelRunner& runner);

  // Row `index` of those whose queries the last pass kept.
  void add(ModelRunner& runner, size_t index);
  size_t rows() const { return rows_; }

  // Per group of KV, the blocks of the sequence.
  using Tables = std::span<const std::span<const BlockId>>;
  // Keeps, for take(): of each of the first `tokens` tokens the largest weight that a head gave it, averaged over the rows.
  void weigh(ModelRunner& runner, Tables tables, int tokens);
  std::vector<float> take() { return std::exchange(weights_, {}); }

 private:
  struct Layer {
    size_t index = 0;
    std::vector<float> queries;  // [rows, heads, head_dim]
  };
  std::vector<kernels::KeyWeightLayer> sources(ModelRunner& runner, Tables tables, int tokens) const;

  std::vector<Layer> layers_;
  size_t rows_ = 0;
  std::vector<float> weights_;
};

}  // namespace sluice::runtime

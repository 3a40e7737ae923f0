// Device pointers of lists of matrices, such as the experts of a layer or a matrix per head.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/step/step_context.h"
#include "kernels/weight.h"

namespace sluice::kernels::cuda {

// One list per matrix of the (alike) weights.
struct PointerTable {
  std::weak_ptr<const void> owner;
  std::vector<Matrix> matrices;  // shape of each; data is null
  std::vector<const void* const*> weights;
  std::vector<const float* const*> biases;  // null where the weights have none
  const void* maps = nullptr;               // [weights] of write_expert_map(), or null
  DeviceBuffer memory, map_memory;
};

class PointerTables {
 public:
  // Single: tensor maps for lists of single bf16 matrices.
  enum class TensorMaps : uint8_t { None, Single };
  // The context outlives this.
  PointerTables(StepContext& step, TensorMaps maps) : step_(step), maps_(maps) {}

  // Made at the first use of the weights. REQUIRES: !weights.empty(), and all have the same matrices.
  const PointerTable& of(std::span<const Weight> weights);

 private:
  PointerTable make(std::span<const Weight> weights);
  DeviceBuffer upload(const void* data, size_t bytes);
  void add_maps(PointerTable& table, std::span<const Weight> weights);

  StepContext& step_;
  TensorMaps maps_;
  std::map<const void*, PointerTable> tables_;
};

}  // namespace sluice::kernels::cuda

// Device pointers of lists of matrices, such as the experts of a layer or a matrix per head.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/gemm/grouped/matrix_runs.h"
#include "kernels/cuda/step/step_context.h"
#include "kernels/weight.h"

namespace sluice::kernels::cuda {

struct PointerTable {
  struct Run : MatrixRun {
    const void* const* weights = nullptr;  // [count]
    const float* const* biases = nullptr;  // [count], or null where the weights have none
    const void* maps = nullptr;            // [count] of write_expert_map(), or null
  };
  std::weak_ptr<const void> owner;
  std::vector<Run> runs;  // for each a launch
  // [weights] device pointers of the orders of their columns, null for those of x; null where no weight has one.
  const int32_t* const* orders = nullptr;
  DeviceBuffer memory, map_memory;

  // Where every weight is one matrix, and all are alike; else null.
  const Run* single() const { return runs.size() == 1 ? runs.data() : nullptr; }
};

class PointerTables {
 public:
  // Bf16: tensor maps of bf16 matrices, for kernels of sm_90a.
  enum class TensorMaps : uint8_t { None, Bf16 };
  // The context outlives this.
  PointerTables(StepContext& step, TensorMaps maps) : step_(step), maps_(maps) {}

  // Made at the first use of the weights. REQUIRES: !weights.empty(), and all have as many rows and columns.
  const PointerTable& of(std::span<const Weight> weights);

 private:
  PointerTable make(std::span<const Weight> weights);
  DeviceBuffer upload(const void* data, size_t bytes);
  void add_maps(PointerTable& table, std::span<const ListedWeight> weights);

  StepContext& step_;
  TensorMaps maps_;
  std::map<const void*, PointerTable> tables_;
};

}  // namespace sluice::kernels::cuda

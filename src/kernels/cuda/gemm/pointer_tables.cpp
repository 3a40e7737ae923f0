#include "kernels/cuda/gemm/pointer_tables.h"

#include "base/check.h"
#include "kernels/cuda/common/weights.h"
#include "kernels/cuda/gemm/grouped_gemm_params.h"

namespace sluice::kernels::cuda {

namespace {

// For each matrix of the weights its pointers, then for each matrix those to its part of the biases.
std::vector<const void*> pointers_of(std::span<const Weight> weights) {
  const DeviceWeight& first = device_weight(weights[0]);
  const size_t kinds = first.matrices.size();
  std::vector<const void*> pointers;
  for (size_t m = 0; m < kinds; ++m) {
    for (const Weight& weight : weights) {
      const DeviceWeight& other = device_weight(weight);
      SLUICE_CHECK(other.matrices.size() == kinds && other.matrices[m].type == first.matrices[m].type &&
                   other.matrices[m].rows == first.matrices[m].rows &&
                   other.matrices[m].cols == first.matrices[m].cols);
      pointers.push_back(other.matrices[m].data);
    }
  }
  int64_t row = 0;
  for (size_t m = 0; m < kinds; ++m) {
    for (const Weight& weight : weights) {
      const float* bias = device_weight(weight).bias;
      SLUICE_CHECK((bias != nullptr) == (first.bias != nullptr));
      pointers.push_back(bias != nullptr ? bias + row : nullptr);
    }
    row += first.matrices[m].rows;
  }
  return pointers;
}

}  // namespace

const PointerTable& PointerTables::of(std::span<const Weight> weights) {
  SLUICE_CHECK(!weights.empty());
  PointerTable& table = tables_[weights[0].packed.get()];
  if (table.owner.lock() != weights[0].packed) table = make(weights);
  return table;
}

DeviceBuffer PointerTables::upload(const void* data, size_t bytes) {
  DeviceBuffer memory = allocate_device(bytes);
  check(cudaMemcpyAsync(memory.get(), data, bytes, cudaMemcpyHostToDevice, step_.stream),
        "upload of a pointer table");
  check(cudaStreamSynchronize(step_.stream), "upload of a pointer table");
  return memory;
}

PointerTable PointerTables::make(std::span<const Weight> weights) {
  const DeviceWeight& first = device_weight(weights[0]);
  const size_t count = weights.size(), kinds = first.matrices.size();
  const std::vector<const void*> pointers = pointers_of(weights);
  PointerTable table;
  table.owner = weights[0].packed;
  table.memory = upload(pointers.data(), pointers.size() * sizeof(void*));
  auto* const base = static_cast<const void**>(table.memory.get());
  for (size_t m = 0; m < kinds; ++m) {
    table.matrices.push_back(first.matrices[m]);
    table.matrices.back().data = nullptr;
    table.weights.push_back(base + m * count);
    table.biases.push_back(
        first.bias != nullptr ? reinterpret_cast<const float* const*>(base + (kinds + m) * count) : nullptr);
  }
  if (maps_ == TensorMaps::Single) add_maps(table, weights);
  return table;
}

void PointerTables::add_maps(PointerTable& table, std::span<const Weight> weights) {
  if (table.matrices.size() != 1 || table.matrices[0].type != DType::BF16 ||
      !experts_fit(table.matrices[0], std::ssize(weights), 1))
    return;
  std::vector<std::byte> maps(weights.size() * kExpertMapBytes);
  for (size_t i = 0; i < weights.size(); ++i)
    write_expert_map(maps.data() + i * kExpertMapBytes, device_weight(weights[i]).matrices[0]);
  table.map_memory = upload(maps.data(), maps.size());
  table.maps = table.map_memory.get();
}

}  // namespace sluice::kernels::cuda

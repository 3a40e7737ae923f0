#include "kernels/cuda/gemm/grouped/pointer_tables.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/common/features.h"
#include "kernels/cuda/common/weights.h"
#include "kernels/cuda/gemm/grouped/grouped_gemm_params.h"

namespace sluice::kernels::cuda {

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

// In memory each run has the pointers of its matrices, then those to its part of the biases; the orders are the last.
PointerTable PointerTables::make(std::span<const Weight> weights) {
  std::vector<ListedWeight> listed;
  for (const Weight& weight : weights)
    listed.push_back({device_weight(weight).matrices, device_weight(weight).bias != nullptr});
  PointerTable table;
  table.owner = weights[0].packed;
  std::vector<const void*> pointers;
  for (const MatrixRun& found : matrix_runs(listed)) {
    table.runs.push_back({found});
    const auto first = static_cast<size_t>(found.first), last = first + static_cast<size_t>(found.count);
    for (size_t i = first; i < last; ++i) pointers.push_back(matrix_at(listed[i], found.row).data);
    for (size_t i = first; i < last && found.bias; ++i)
      pointers.push_back(device_weight(weights[i]).bias + found.row);
  }
  const size_t orders_at = pointers.size();
  if (std::ranges::any_of(weights,
                          [](const Weight& weight) { return device_weight(weight).order != nullptr; }))
    for (const Weight& weight : weights) pointers.push_back(device_weight(weight).order);
  table.memory = upload(pointers.data(), pointers.size() * sizeof(void*));
  const auto* at = static_cast<const void* const*>(table.memory.get());
  if (pointers.size() > orders_at) table.orders = reinterpret_cast<const int32_t* const*>(at + orders_at);
  for (PointerTable::Run& run : table.runs) {
    run.weights = at;
    at += run.count;
    if (!run.bias) continue;
    run.biases = reinterpret_cast<const float* const*>(at);
    at += run.count;
  }
  if (maps_ == TensorMaps::Bf16) add_maps(table, listed);
  return table;
}

void PointerTables::add_maps(PointerTable& table, std::span<const ListedWeight> weights) {
  std::vector<std::byte> maps;
  std::vector<size_t> places;  // of each run's in `maps`
  for (const PointerTable::Run& run : table.runs) {
    places.push_back(maps.size());
    if (!features().hopper || run.shape.type != DType::BF16 || !experts_fit(run.shape, run.count, 1))
      continue;
    maps.resize(places.back() + static_cast<size_t>(run.count) * kExpertMapBytes);
    for (int64_t i = 0; i < run.count; ++i)
      write_expert_map(maps.data() + places.back() + static_cast<size_t>(i) * kExpertMapBytes,
                       matrix_at(weights[static_cast<size_t>(run.first + i)], run.row));
  }
  if (maps.empty()) return;
  table.map_memory = upload(maps.data(), maps.size());
  places.push_back(maps.size());
  for (size_t i = 0; i < table.runs.size(); ++i)
    if (places[i + 1] > places[i])
      table.runs[i].maps = static_cast<const std::byte*>(table.map_memory.get()) + places[i];
}

}  // namespace sluice::kernels::cuda

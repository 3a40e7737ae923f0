#include "kernels/cuda/key_weights/key_weights.h"

#include <algorithm>

#include "kernels/cuda/attention/attention_dispatch.h"
#include "kernels/cuda/common/views.h"

namespace sluice::kernels::cuda {

namespace {

bool takes(const KeyWeightLayer& layer) {
  const TensorView& k = layer.keys;
  return k.device == Device::Cuda && (k.dtype == DType::BF16 || k.dtype == DType::F8_E4M3) && k.rank == 4 &&
         k.stride[3] == 1 && k.dim(3) <= 256;
}

}  // namespace

bool KeyWeightDispatch::weigh(std::span<float> largest, std::span<const KeyWeightLayer> layers, int rows,
                              int tokens) {
  if (!std::all_of(layers.begin(), layers.end(), takes)) return false;
  const auto floats = [](size_t count) { return (count + 63) / 64 * 64; };
  size_t queries = 0, blocks = 0, scores = 0;
  for (const KeyWeightLayer& layer : layers) {
    queries = std::max(queries, floats(layer.queries.size()));
    blocks = std::max(blocks, floats(layer.table.size()));
    scores = std::max(scores, floats(static_cast<size_t>(rows * layer.heads) * static_cast<size_t>(tokens)));
  }
  auto* const memory =
      static_cast<float*>(memory_.at_least((queries + blocks + scores + largest.size()) * sizeof(float)));
  float* const device_largest = memory + queries + blocks + scores;
  check(cudaMemsetAsync(device_largest, 0, largest.size_bytes(), step_.stream), "memset");
  for (const KeyWeightLayer& layer : layers) {
    KeyWeightParams p = blank<KeyWeightParams>();
    p.keys = cache_of(layer.keys, {});
    p.queries = memory;
    p.blocks = reinterpret_cast<const int32_t*>(memory + queries);
    p.scores = memory + queries + blocks;
    p.largest = device_largest;
    p.block_size = static_cast<int32_t>(layer.keys.dim(1));
    p.rows = rows;
    p.heads = layer.heads;
    p.kv_heads = static_cast<int32_t>(layer.keys.dim(2));
    p.tokens = tokens;
    p.scale = layer.scale;
    p.softcap = layer.softcap;
    check(cudaMemcpyAsync(memory, layer.queries.data(), layer.queries.size_bytes(), cudaMemcpyHostToDevice,
                          step_.stream),
          "upload");
    check(cudaMemcpyAsync(memory + queries, layer.table.data(), layer.table.size_bytes(),
                          cudaMemcpyHostToDevice, step_.stream),
          "upload");
    launch_key_weights(p, step_.stream);
  }
  check(cudaMemcpyAsync(largest.data(), device_largest, largest.size_bytes(), cudaMemcpyDeviceToHost,
                        step_.stream),
        "download");
  check(cudaStreamSynchronize(step_.stream), "download");
  return true;
}

}  // namespace sluice::kernels::cuda

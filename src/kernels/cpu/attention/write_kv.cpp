// What a step's tokens bring to attention: rotations by position, and rows written to paged KV, a task for each token.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/host.h"
#include "kernels/rotation.h"

namespace sluice::kernels::cpu {

namespace {

void store_quantized(const TensorView& cache, float& scale, int8_t* to, const float* row) {
  const int64_t width = cache.dim(3);
  float largest = 0, poison = 0;
  for (int64_t i = 0; i < width; ++i) {
    largest = std::max(largest, std::fabs(row[i]));
    poison += row[i] - row[i];  // 0, or NaN from a value that is not finite
  }
  if (poison != 0) {
    scale = poison;
    std::fill_n(to, width, int8_t{1});
    return;
  }
  scale = largest / 127.0f;
  const float inverse = scale == 0 ? 0.0f : 127.0f / largest;
  for (int64_t i = 0; i < width; ++i) to[i] = static_cast<int8_t>(std::nearbyint(row[i] * inverse));
}

}  // namespace

void CpuBackend::write_kv(const PagedKv& kv, TensorView k, TensorView v, const RaggedBatch& batch) {
  SLUICE_CHECK(is_kv(kv.k.dtype) && is_kv(kv.v.dtype));
  const int64_t block_size = kv.k.dim(1);
  const KvRotation rotation = rotation_of(kv);
  const auto& table = batch.tables[static_cast<size_t>(kv.table)];
  const auto store = [&](const TensorView& cache, const TensorView& scales, int64_t block, int64_t slot,
                         TensorView x, int64_t token, int64_t rotated) {
    thread_local std::vector<float> rotated_row;  // grows once: no step allocates
    if (cache.dtype == DType::I8) rotated_row.resize(static_cast<size_t>(cache.dim(3)));
    for (int64_t head = 0; head < x.dim(1); ++head) {
      const float* row = x.at<float>(token, head);
      if (cache.dtype == DType::I8) {
        kernels_.rotate(rotated_row.data(), row, cache.dim(3), rotated);
        store_quantized(cache, scales.at<float>(block, slot)[head], cache.at<int8_t>(block, slot, head),
                        rotated_row.data());
      } else {
        const int64_t offset = block * cache.stride[0] + slot * cache.stride[1] + head * cache.stride[2];
        void* to = static_cast<std::byte*>(cache.data) + offset * info(cache.dtype).block_bytes;
        kernels_.store_kv(to, cache.dtype, row, cache.dim(3));
      }
    }
  };
  for (int sequence = 0; sequence < batch.sequences(); ++sequence) {
    const auto s = static_cast<size_t>(sequence);
    const int64_t begin = batch.query_begin[s];
    for_rows(batch.query_begin[s + 1] - begin, k.dim(1) * k.dim(2), [&](int64_t i) {
      const int64_t token = begin + i;
      const int64_t position = batch.positions[static_cast<size_t>(token)];
      const int64_t block = kv_block(table, sequence, position / block_size);
      store(kv.k, kv.k_scales, block, position % block_size, k, token, rotation.key);
      if (!v.empty()) store(kv.v, kv.v_scales, block, position % block_size, v, token, rotation.value);
    });
  }
}

// -- position

void CpuBackend::rope_angles(TensorView angles, const RaggedBatch& batch, const RopeTable& table) {
  const int64_t pairs = table.pairs();
  for_rows(batch.tokens(), 16 * pairs, [&](int64_t i) {  // a sine weighs as much as many plain elements
    const int64_t row = table.row_of(batch, i);
    const float* frequencies = table.inverse_frequency.at<float>(row);
    const float magnitude = row == 0 ? table.magnitude : table.magnitude_beyond;
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const float angle = static_cast<float>(table.position_of(batch, i, pair)) * frequencies[pair];
      float* to = angles.at<float>(i, pair);
      to[0] = magnitude * std::cos(angle);
      to[1] = magnitude * std::sin(angle);
    }
  });
}

void CpuBackend::rope(TensorView x, TensorView angles, RopeStyle style) {
  SLUICE_CHECK_LE(2 * angles.dim(1), x.dim(2));
  for_rows(x.dim(0), x.dim(1) * x.dim(2), [&](int64_t i) {
    for (int64_t head = 0; head < x.dim(1); ++head) {
      kernels_.rope(x.at<float>(i, head), angles.at<float>(i), angles.dim(1), style);
    }
  });
}

}  // namespace sluice::kernels::cpu

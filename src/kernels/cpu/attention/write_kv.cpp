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

// Stores rows of a step's tokens where their positions lie.
class KvWriter {
 public:
  KvWriter(const KernelTable& kernels, const PagedKv& kv, const RaggedBatch& batch)
      : kernels_(kernels), kv_(kv), batch_(batch), rotation_(rotation_of(kv)) {
    SLUICE_CHECK(is_kv(kv.k.dtype) && is_kv(kv.v.dtype));
  }

  // v is empty where it aliases k.
  void write(const TensorView& k, const TensorView& v, int64_t token) const {
    const auto after = std::upper_bound(batch_.query_begin.begin(), batch_.query_begin.end(), token);
    const auto sequence = static_cast<int>(after - batch_.query_begin.begin()) - 1;
    const int64_t position = batch_.positions[static_cast<size_t>(token)], block_size = kv_.k.dim(1);
    const auto& table = batch_.tables[static_cast<size_t>(kv_.table)];
    const Slot slot{kv_block(table, sequence, position / block_size), position % block_size};
    store(kv_.k, kv_.k_scales, slot, k, token, rotation_.key);
    if (!v.empty()) store(kv_.v, kv_.v_scales, slot, v, token, rotation_.value);
  }

 private:
  struct Slot {
    int64_t block, slot;
  };
  void store(const TensorView& cache, const TensorView& scales, Slot at, const TensorView& x, int64_t token,
             int64_t rotated) const {
    thread_local std::vector<float> rotated_row;  // grows once: no step allocates
    if (cache.dtype == DType::I8) rotated_row.resize(static_cast<size_t>(cache.dim(3)));
    for (int64_t head = 0; head < x.dim(1); ++head) {
      const float* row = x.at<float>(token, head);
      if (cache.dtype == DType::I8) {
        kernels_.rotate(rotated_row.data(), row, cache.dim(3), rotated);
        store_quantized(cache, scales.at<float>(at.block, at.slot)[head],
                        cache.at<int8_t>(at.block, at.slot, head), rotated_row.data());
      } else {
        const int64_t offset =
            at.block * cache.stride[0] + at.slot * cache.stride[1] + head * cache.stride[2];
        void* to = static_cast<std::byte*>(cache.data) + offset * info(cache.dtype).block_bytes;
        kernels_.store_kv(to, cache.dtype, row, cache.dim(3));
      }
    }
  }

  const KernelTable& kernels_;
  const PagedKv& kv_;
  const RaggedBatch& batch_;
  KvRotation rotation_;
};

}  // namespace

void CpuBackend::write_kv(const PagedKv& kv, TensorView k, TensorView v, const RaggedBatch& batch) {
  const KvWriter writer(kernels_, kv, batch);
  for_rows(batch.tokens(), k.dim(1) * k.dim(2), [&](int64_t token) { writer.write(k, v, token); });
}

// One region for all of it: each part is small.
void CpuBackend::rope_write_kv(const PagedKv& kv, const QkvHeads& x, TensorView angles, RopeStyle style,
                               const RaggedBatch& batch) {
  const int64_t width = std::min(x.q.dim(2), x.k.dim(2));
  SLUICE_CHECK_LE(2 * angles.dim(1), width);
  const KvWriter writer(kernels_, kv, batch);
  // A number that is rotated weighs as much as two plain ones.
  const int64_t weight = 2 * (x.q.dim(1) * x.q.dim(2) + 2 * x.k.dim(1) * x.k.dim(2));
  for_rows(batch.tokens(), weight, [&](int64_t token) {
    rope_token(x.q, angles, style, token);
    rope_token(x.k, angles, style, token);
    writer.write(x.k, x.v, token);
  });
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
  for_rows(x.dim(0), x.dim(1) * x.dim(2), [&](int64_t i) { rope_token(x, angles, style, i); });
}

void CpuBackend::rope_token(const TensorView& x, const TensorView& angles, RopeStyle style,
                            int64_t token) const {
  for (int64_t head = 0; head < x.dim(1); ++head)
    kernels_.rope(x.at<float>(token, head), angles.at<float>(token), angles.dim(1), style);
}

}  // namespace sluice::kernels::cpu

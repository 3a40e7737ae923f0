// Attention for every shape the contract allows: any head sizes (values up to 512), caches of every type, activations in
// f32. Common shapes have flash.h, most others tile_attention.h; this kernel takes the rest.
//
// One block per (token, query head): four warps take the visible keys in turn, each with its own running
// maximum, sum and weighted values in registers (lane l holds elements l, l + 32, ...); they are merged in
// shared memory at the end. Reads the keys and values of a sequence once per query head, mostly from the L2.
#include "kernels/cuda/attention/attention_params.h"
#include "kernels/cuda/common/device.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = 4;

__device__ __forceinline__ float scale_of(const CacheView& c, int64_t block, int64_t slot, int64_t head) {
  if (c.scales == nullptr) return 1.0f;
  return c.scales[block * c.scale_stride_block + slot * c.scale_stride_slot + head];
}

// Shared memory: q as f32 [key_dim], then the warps' maxima, sums [2, kWarps] and values [kWarps, value_dim].
template <class T, class Element, int Pieces>
__global__ void __launch_bounds__(kWarps * 32) attention_kernel(const AttentionParams p) {
  extern __shared__ float shared[];
  allow_dependents();
  wait_for_producer();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t token = blockIdx.x, head = blockIdx.y, kv_head = head / (p.q.heads / p.kv_heads);
  const int64_t key_dim = p.k.dim, value_dim = p.v.dim;
  float* q = shared;
  float* maxima = q + key_dim;
  float* sums = maxima + kWarps;
  float* values = sums + kWarps;
  const T* query = static_cast<const T*>(p.q.data) + token * p.q.stride_n + head * p.q.stride_h;
  for (int64_t i = threadIdx.x; i < key_dim; i += kWarps * 32) q[i] = widen(query[i]) * p.scale;
  __syncthreads();

  const int64_t own = p.table.positions[token];
  const int64_t first = p.chunked != 0                    ? own - own % p.window
                        : p.window > 0 && own >= p.window ? own - p.window + 1
                                                          : 0;
  const int64_t last = p.table.seen != nullptr ? p.table.seen[token] : own;
  const int32_t* blocks = p.table.blocks + p.table.row_begin[p.table.sequence[token]];
  const float slope = p.alibi != nullptr ? p.alibi[head] : 0.0f;
  float maximum = -INFINITY, sum = 0.0f;
  float acc[Pieces];
#pragma unroll
  for (int i = 0; i < Pieces; ++i) acc[i] = 0.0f;

  for (int64_t position = first + warp; position <= last; position += kWarps) {
    const int64_t block = blocks[position / p.table.block_size], slot = position % p.table.block_size;
    const Element* key = static_cast<const Element*>(p.k.data) + block * p.k.stride_block +
                         slot * p.k.stride_slot + kv_head * p.k.stride_head;
    float score = 0.0f;
    for (int64_t i = lane; i < key_dim; i += 32) score += q[i] * widen(key[i]);
    score = warp_sum(score) * scale_of(p.k, block, slot, kv_head);
    if (p.softcap > 0.0f) score = p.softcap * tanhf(score / p.softcap);
    score += slope * static_cast<float>(position - own);
    const float larger = fmaxf(maximum, score);
    const float keep = __expf(maximum - larger), weight = __expf(score - larger);
    maximum = larger;
    sum = sum * keep + weight;
    const Element* value = static_cast<const Element*>(p.v.data) + block * p.v.stride_block +
                           slot * p.v.stride_slot + kv_head * p.v.stride_head;
    const float scaled = weight * scale_of(p.v, block, slot, kv_head);
#pragma unroll
    for (int i = 0; i < Pieces; ++i) {
      const int64_t d = lane + 32 * i;
      acc[i] = acc[i] * keep + (d < value_dim ? scaled * widen(value[d]) : 0.0f);
    }
  }

  if (lane == 0) maxima[warp] = maximum, sums[warp] = sum;
#pragma unroll
  for (int i = 0; i < Pieces; ++i)
    if (lane + 32 * i < value_dim) values[warp * value_dim + lane + 32 * i] = acc[i];
  __syncthreads();
  float total_maximum = p.sinks != nullptr ? p.sinks[head] : -INFINITY;
  for (int w = 0; w < kWarps; ++w) total_maximum = fmaxf(total_maximum, maxima[w]);
  float total = p.sinks != nullptr ? __expf(p.sinks[head] - total_maximum) : 0.0f;
  float factors[kWarps];
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    factors[w] = sums[w] > 0.0f ? __expf(maxima[w] - total_maximum) : 0.0f;
    total += sums[w] * factors[w];
  }
  T* out = static_cast<T*>(p.out.data) + token * p.out.stride_n + head * p.out.stride_h;
  for (int64_t d = threadIdx.x; d < value_dim; d += kWarps * 32) {
    float value = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) value += factors[w] * values[w * value_dim + d];
    out[d] = narrow<T>(value / total);
  }
}

template <class T, class Element>
void launch_element(const AttentionParams& p, Stream stream) {
  const size_t shared = static_cast<size_t>(p.k.dim + 2 * kWarps + kWarps * p.v.dim) * sizeof(float);
  const Grid grid{dim3(static_cast<unsigned>(p.q.n), static_cast<unsigned>(p.q.heads)), dim3(kWarps * 32),
                  shared};
  if (p.v.dim <= 128) return launch("attention", attention_kernel<T, Element, 4>, grid, stream, p);
  if (p.v.dim <= 256) return launch("attention", attention_kernel<T, Element, 8>, grid, stream, p);
  check_launch(p.v.dim <= 512 && p.k.dim <= 4096 ? cudaSuccess : cudaErrorInvalidValue,
               "attention of this head size");
  launch("attention", attention_kernel<T, Element, 16>, grid, stream, p);
}

}  // namespace

void launch_attention(const AttentionParams& p, Stream stream) {
  if (p.q.n == 0) return;
  visit_activations(p.q.type, [&](auto element) {
    using T = decltype(element);
    visit_cache(p.k.type, "attention over a cache of this type",
                [&](auto cached) { launch_element<T, decltype(cached)>(p, stream); });
  });
}

}  // namespace sluice::kernels::cuda

// Scores of index keys: q [n, heads, dim] against one head of paged keys, as ranks.
//
// A block of threads takes 64 keys and some neighbouring tokens: the keys lie in shared memory as f32, queries come there 16
// heads at a time. A thread has one key and 8 heads: 8 products for 3 loads of shared memory. Keys that no token of the block
// sees are not read. Bytes moved: every key once for each `together` tokens, mostly from the L2. Operations:
// 2 · heads · dim for each token and key, without tensor cores.
#include "kernels/cuda/chosen/chosen_params.h"
#include "kernels/cuda/common/device.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kKeys = 64, kHeads = 16, kThreads = 128;
constexpr int kQueryStride = 20;  // of 16 heads, so that neighbouring columns lie in other banks

__device__ __forceinline__ uint32_t rank_of(float score) {
  if (score != score) return 0xffffffffu;
  const uint32_t bits = __float_as_uint(score + 0.0f);  // -0 is 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ int64_t last_seen(const TableView& table, int64_t token) {
  return table.seen != nullptr ? table.seen[token] : table.positions[token];
}

template <class Element>
__device__ void load_keys(const IndexScoresParams& p, float* keys, int64_t begin, int sequence) {
  const int64_t dim = p.q.dim;
  const int32_t row = p.table.row_begin[sequence];
  const int64_t known = int64_t{p.table.row_begin[sequence + 1] - row} * p.table.block_size;
  for (int64_t i = threadIdx.x; i < kKeys * dim; i += kThreads) {
    const int64_t key = i / dim, column = i % dim, position = begin + key;
    float value = 0.0f;
    if (position < known) {
      const int64_t block = p.table.blocks[row + position / p.table.block_size],
                    slot = position % p.table.block_size;
      value = widen(static_cast<const Element*>(
          p.keys.data)[block * p.keys.stride_block + slot * p.keys.stride_slot + column]);
      if (p.keys.scales != nullptr)
        value *= p.keys.scales[block * p.keys.scale_stride_block + slot * p.keys.scale_stride_slot];
    }
    keys[key * (dim + 1) + column] = value;
  }
}

// Columns of 16 heads from `head` on; heads that there are not are 0.
template <class T>
__device__ void load_queries(const IndexScoresParams& p, float* queries, int64_t token, int64_t head) {
  const int64_t dim = p.q.dim;
  const T* q = static_cast<const T*>(p.q.data) + token * p.q.stride_n;
  for (int64_t i = threadIdx.x; i < kHeads * dim; i += kThreads) {
    const int64_t h = i / dim, column = i % dim;
    queries[column * kQueryStride + h] =
        head + h < p.q.heads ? widen(q[(head + h) * p.q.stride_h + column]) : 0.0f;
  }
}

// Products of a thread's key with its 8 of the 16 heads.
__device__ __forceinline__ void multiply(float (&sums)[8], const float* key, const float* queries,
                                         int64_t dim) {
#pragma unroll
  for (int j = 0; j < 8; ++j) sums[j] = 0.0f;
#pragma unroll 4
  for (int64_t i = 0; i < dim; ++i) {
    const float value = key[i];
    const float4 a = *reinterpret_cast<const float4*>(queries + i * kQueryStride),
                 b = *reinterpret_cast<const float4*>(queries + i * kQueryStride + 4);
    sums[0] = fmaf(value, a.x, sums[0]), sums[1] = fmaf(value, a.y, sums[1]);
    sums[2] = fmaf(value, a.z, sums[2]), sums[3] = fmaf(value, a.w, sums[3]);
    sums[4] = fmaf(value, b.x, sums[4]), sums[5] = fmaf(value, b.y, sums[5]);
    sums[6] = fmaf(value, b.z, sums[6]), sums[7] = fmaf(value, b.w, sums[7]);
  }
}

// The largest rank of a block of positions: of a warp's keys first, where they are of one block.
__device__ __forceinline__ void keep_largest(uint32_t* ranks, int64_t block, uint32_t rank) {
  const int64_t first = __shfl_sync(0xffffffffu, block, 0);
  if (__all_sync(0xffffffffu, block == first)) {
    rank = __reduce_max_sync(0xffffffffu, rank);
    if (threadIdx.x % 32 == 0 && rank != 0) atomicMax(ranks + block, rank);
  } else if (rank != 0) {
    atomicMax(ranks + block, rank);
  }
}

// grid: (tiles of keys, tiles of tokens). Shared memory: keys [64, dim + 1], sums [64], queries [dim, 20].
template <class T, class Element>
__global__ void __launch_bounds__(kThreads) index_scores_kernel(const IndexScoresParams p) {
  extern __shared__ float4 shared4[];
  allow_dependents();
  wait_for_producer();
  const int64_t dim = p.q.dim, begin = int64_t{blockIdx.x} * kKeys;
  float* queries = reinterpret_cast<float*>(shared4);
  float* others = queries + dim * kQueryStride;
  float* keys = others + kKeys;
  const int key = threadIdx.x % kKeys, half = threadIdx.x / kKeys;
  const int64_t position = begin + key;
  int staged = -1;
  for (int t = 0; t < p.together; ++t) {
    const int64_t place = int64_t{blockIdx.y} * p.together + t, token = p.first + place;
    if (place >= p.count) break;
    const int64_t last = last_seen(p.table, token);
    if (begin > last || last < p.all) continue;
    if (p.table.sequence[token] != staged) {
      staged = p.table.sequence[token];
      __syncthreads();
      load_keys<Element>(p, keys, begin, staged);
    }
    float score = 0.0f;
    for (int64_t head = 0; head < p.q.heads; head += kHeads) {
      __syncthreads();
      load_queries<T>(p, queries, token, head);
      __syncthreads();
      float sums[8];
      multiply(sums, keys + key * (dim + 1), queries + half * 8, dim);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int64_t h = head + half * 8 + j;
        if (h >= p.q.heads) break;
        if (p.weights != nullptr) {
          score += p.weights[token * p.weights_stride + h] * fmaxf(sums[j], 0.0f);
        } else {
          keep_largest(p.ranks + (place * p.q.heads + h) * p.columns, position / p.size,
                       position <= last ? rank_of(sums[j]) : 0);
        }
      }
    }
    if (p.weights == nullptr) continue;
    if (half == 1) others[key] = score;
    __syncthreads();
    if (half == 0 && position <= last) p.ranks[place * p.columns + position] = rank_of(score + others[key]);
  }
}

__global__ void __launch_bounds__(256) clear_kernel(uint32_t* numbers, int64_t count) {
  allow_dependents();
  wait_for_producer();
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) numbers[i] = 0;
}

template <class T, class Element>
void launch_element(const IndexScoresParams& p, Stream stream) {
  const size_t shared =
      static_cast<size_t>(p.q.dim * kQueryStride + kKeys + kKeys * (p.q.dim + 1)) * sizeof(float);
  const auto kernel = index_scores_kernel<T, Element>;
  check_launch(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
      "index scores of this width");
  const int64_t positions = p.weights != nullptr ? p.columns : p.columns * p.size;
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(positions, kKeys)),
                       static_cast<unsigned>(ceil_div(p.count, p.together))),
                  dim3(kThreads), shared};
  launch("index scores", kernel, grid, stream, p);
}

}  // namespace

void launch_index_scores(const IndexScoresParams& p, Stream stream) {
  if (p.count == 0) return;
  if (p.weights == nullptr) {
    const int64_t count = p.count * p.q.heads * p.columns;
    const auto blocks = static_cast<unsigned>(ceil_div(count, 256) < 4096 ? ceil_div(count, 256) : 4096);
    launch("clear ranks", clear_kernel, Grid{dim3(blocks), dim3(256)}, stream, p.ranks, count);
  }
  visit_activations(p.q.type, [&](auto element) {
    using T = decltype(element);
    visit_cache(p.keys.type, "index scores of keys of this type",
                [&](auto cached) { launch_element<T, decltype(cached)>(p, stream); });
  });
}

}  // namespace sluice::kernels::cuda

// Attention of tokens to lists of positions, each of its own: q [n, heads, key_dim], out [n, heads, value_dim].
//
// A block of threads takes one token, up to 16 query heads of one kv head and 256 places of its list; a warp has two of the
// heads. 32 keys at a time come to shared memory as they are stored, rows padded to odd numbers of words: a lane has one key and
// its two scores, then values are added up with a lane for every 32nd column. What the parts of a list give is merged by a second
// kernel in their order. Bytes moved: chosen keys and values once for each 16 heads (where values are the first part of the keys
// once for both), and the results of the parts. Operations: 2 · (key_dim + value_dim) for each head and position, without
// tensor cores.
#include "kernels/cuda/chosen/chosen_params.h"
#include "kernels/cuda/common/device.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32, kHeads = 2 * kWarps, kKeys = 32;

// Words of 32 bits of a row of so many bytes, odd: rows that follow each other begin in other banks.
__host__ __device__ __forceinline__ int row_words(int64_t bytes) {
  return static_cast<int>((bytes + 3) / 4) | 1;
}

__device__ __forceinline__ void widen_word(uint32_t word, float (&f)[1], float) {
  f[0] = __uint_as_float(word);
}
template <class Element>
__device__ __forceinline__ void widen_word(uint32_t word, float (&f)[4 / sizeof(Element)], Element) {
  const Element* elements = reinterpret_cast<const Element*>(&word);
#pragma unroll
  for (int i = 0; i < static_cast<int>(4 / sizeof(Element)); ++i) f[i] = widen(elements[i]);
}

struct Layout {
  int key_words, value_words, query_floats;
  bool shared_rows;  // values are read in the rows of the keys
  size_t bytes;
};

__host__ __device__ __forceinline__ Layout layout_of(const ChosenAttentionParams& p, int element) {
  Layout l;
  l.key_words = row_words(p.k.dim * element);
  l.shared_rows = p.v.data == p.k.data;
  l.value_words = l.shared_rows ? l.key_words : row_words(p.v.dim * element);
  l.query_floats = l.key_words * (4 / element);
  const int words = kKeys * (l.key_words + (l.shared_rows ? 0 : l.value_words)) + 2 * kKeys;
  l.bytes = static_cast<size_t>(kHeads * l.query_floats + words) * 4;
  return l;
}

// Where a key of the list lies in a cache, in elements.
struct KeyPlace {
  int64_t block, slot;
};
__device__ __forceinline__ KeyPlace place_of(const ChosenAttentionParams& p, const int32_t* chosen,
                                             const int32_t* blocks, int64_t place) {
  const int64_t position = int64_t{chosen[place / p.size]} * p.size + place % p.size;
  return {blocks[position / p.table.block_size], position % p.table.block_size};
}

// Rows of one head to shared memory, a warp for each; what is behind a row's end becomes 0.
template <class Element>
__device__ void load_rows(uint32_t* to, int words, float* scales, const CacheView& cache, int64_t kv_head,
                          const ChosenAttentionParams& p, const int32_t* chosen, const int32_t* blocks,
                          int64_t begin, int64_t end) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr int kEach = 4 / sizeof(Element);
  const int filled = static_cast<int>(cache.dim / kEach);
  const bool whole_words = cache.dim % kEach == 0 && cache.stride_slot % kEach == 0 &&
                           cache.stride_head % kEach == 0 && cache.stride_block % kEach == 0 &&
                           reinterpret_cast<uintptr_t>(cache.data) % 4 == 0;
  for (int key = warp; key < kKeys; key += kWarps) {
    const bool exists = begin + key < end;
    const KeyPlace at = place_of(p, chosen, blocks, exists ? begin + key : begin);
    const Element* from = static_cast<const Element*>(cache.data) + at.block * cache.stride_block +
                          at.slot * cache.stride_slot + kv_head * cache.stride_head;
    if (whole_words) {
      const uint32_t* from_words = reinterpret_cast<const uint32_t*>(from);
      for (int i = lane; i < words; i += 32) to[key * words + i] = exists && i < filled ? from_words[i] : 0u;
    } else {
      Element* row = reinterpret_cast<Element*>(to + key * words);
      for (int i = lane; i < words * kEach; i += 32)
        row[i] = exists && i < cache.dim ? from[i] : Element(0.0f);
    }
    if (lane == 0)
      scales[key] = !exists || cache.scales == nullptr
                        ? 1.0f
                        : cache.scales[at.block * cache.scale_stride_block +
                                       at.slot * cache.scale_stride_slot + kv_head];
  }
}

// Scores of a lane's key with the warp's two heads.
template <class Element>
__device__ __forceinline__ void score(float (&sums)[2], const uint32_t* key, const float* q,
                                      const Layout& l) {
  constexpr int kEach = 4 / sizeof(Element);
  sums[0] = sums[1] = 0.0f;
#pragma unroll 4
  for (int w = 0; w < l.key_words; ++w) {
    float k[kEach];
    widen_word(key[w], k, Element());
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      sums[0] = fmaf(k[i], q[w * kEach + i], sums[0]);
      sums[1] = fmaf(k[i], q[l.query_floats + w * kEach + i], sums[1]);
    }
  }
}

// grid: (tokens, kv heads · pieces of 16 of their query heads, parts of the lists)
template <class T, class Element, int Pieces>
__global__ void __launch_bounds__(kThreads) chosen_attention_kernel(const ChosenAttentionParams p) {
  extern __shared__ uint32_t shared[];
  allow_dependents();
  wait_for_producer();
  const Layout l = layout_of(p, sizeof(Element));
  float* queries = reinterpret_cast<float*>(shared);
  uint32_t* keys = shared + kHeads * l.query_floats;
  uint32_t* values = l.shared_rows ? keys : keys + kKeys * l.key_words;
  float* key_scales = reinterpret_cast<float*>(values + kKeys * l.value_words);
  float* value_scales = key_scales + kKeys;

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t group = p.q.heads / p.kv_heads, pieces = (group + kHeads - 1) / kHeads;
  const int64_t token = p.first + blockIdx.x, kv_head = blockIdx.y / pieces,
                first_head = kv_head * group + blockIdx.y % pieces * kHeads;
  const int64_t heads = min(static_cast<int64_t>(kHeads), (kv_head + 1) * group - first_head);
  const int64_t last = p.table.seen != nullptr ? p.table.seen[token] : p.table.positions[token];
  const int64_t seen_blocks = last / p.size + 1,
                count = (min(seen_blocks, static_cast<int64_t>(p.most)) - 1) * p.size + last % p.size + 1;
  const int64_t begin = int64_t{blockIdx.z} * kChosenPart,
                end = min(count, begin + static_cast<int64_t>(kChosenPart));
  if (begin >= end) return;
  const int32_t* chosen = p.blocks + token * p.stride_n + kv_head * p.choices / p.kv_heads * p.stride_c;
  const int32_t* blocks = p.table.blocks + p.table.row_begin[p.table.sequence[token]];

  for (int64_t i = threadIdx.x; i < kHeads * l.query_floats; i += kThreads) {
    const int64_t head = i / l.query_floats, column = i % l.query_floats;
    const T* q = static_cast<const T*>(p.q.data) + token * p.q.stride_n + (first_head + head) * p.q.stride_h;
    queries[i] = head < heads && column < p.k.dim ? widen(q[column]) * p.scale : 0.0f;
  }
  float maxima[2] = {-INFINITY, -INFINITY}, sums[2] = {0.0f, 0.0f}, acc[2][Pieces];
#pragma unroll
  for (int i = 0; i < Pieces; ++i) acc[0][i] = acc[1][i] = 0.0f;

  for (int64_t tile = begin; tile < end; tile += kKeys) {
    __syncthreads();
    load_rows<Element>(keys, l.key_words, key_scales, p.k, kv_head, p, chosen, blocks, tile, end);
    if (!l.shared_rows)
      load_rows<Element>(values, l.value_words, value_scales, p.v, kv_head, p, chosen, blocks, tile, end);
    __syncthreads();
    float scores[2], weights[2];
    score<Element>(scores, keys + lane * l.key_words, queries + 2 * warp * l.query_floats, l);
    const float value_scale = l.shared_rows ? key_scales[lane] : value_scales[lane];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float one = scores[h] * key_scales[lane];
      if (p.softcap > 0.0f) one = p.softcap * tanhf(one / p.softcap);
      if (tile + lane >= end) one = -INFINITY;
      const float larger = fmaxf(maxima[h], warp_max(one));
      // All may be -infinity: nothing is kept and nothing weighs.
      const float keep = larger == -INFINITY ? 1.0f : __expf(maxima[h] - larger);
      const float weight = larger == -INFINITY ? 0.0f : __expf(one - larger);
      maxima[h] = larger;
      sums[h] = sums[h] * keep + warp_sum(weight);
      weights[h] = weight * value_scale;
#pragma unroll
      for (int i = 0; i < Pieces; ++i) acc[h][i] *= keep;
    }
    const int tile_keys = static_cast<int>(min(static_cast<int64_t>(kKeys), end - tile));
    for (int key = 0; key < tile_keys; ++key) {
      const float a = __shfl_sync(0xffffffffu, weights[0], key),
                  b = __shfl_sync(0xffffffffu, weights[1], key);
      const Element* row = reinterpret_cast<const Element*>(values + key * l.value_words);
#pragma unroll
      for (int i = 0; i < Pieces; ++i) {
        if (lane + 32 * i >= p.v.dim) continue;
        const float value = widen(row[lane + 32 * i]);
        acc[0][i] = fmaf(a, value, acc[0][i]);
        acc[1][i] = fmaf(b, value, acc[1][i]);
      }
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t head = 2 * warp + h;
    if (head >= heads) continue;
    float* out =
        p.partial + ((blockIdx.x * p.q.heads + first_head + head) * p.parts + blockIdx.z) * (p.v.dim + 2);
#pragma unroll
    for (int i = 0; i < Pieces; ++i)
      if (lane + 32 * i < p.v.dim) out[lane + 32 * i] = acc[h][i];
    if (lane == 0) out[p.v.dim] = maxima[h], out[p.v.dim + 1] = sums[h];
  }
}

// grid: (tokens, heads)
template <class T>
__global__ void __launch_bounds__(128) merge_chosen_kernel(const ChosenAttentionParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t token = p.first + blockIdx.x, head = blockIdx.y, dim = p.v.dim;
  const int64_t last = p.table.seen != nullptr ? p.table.seen[token] : p.table.positions[token];
  const int64_t blocks = last / p.size + 1,
                count = (min(blocks, static_cast<int64_t>(p.most)) - 1) * p.size + last % p.size + 1;
  const int parts = static_cast<int>((count + kChosenPart - 1) / kChosenPart);
  const float* partial = p.partial + (blockIdx.x * p.q.heads + head) * p.parts * (dim + 2);
  float largest = p.sinks != nullptr ? p.sinks[head] : -INFINITY;
  for (int i = 0; i < parts; ++i) largest = fmaxf(largest, partial[i * (dim + 2) + dim]);
  float total = p.sinks != nullptr ? __expf(p.sinks[head] - largest) : 0.0f;
  for (int i = 0; i < parts; ++i)
    total += partial[i * (dim + 2) + dim + 1] * __expf(partial[i * (dim + 2) + dim] - largest);
  T* out = static_cast<T*>(p.out.data) + token * p.out.stride_n + head * p.out.stride_h;
  for (int64_t d = threadIdx.x; d < dim; d += 128) {
    float value = 0.0f;
    for (int i = 0; i < parts; ++i)
      value += partial[i * (dim + 2) + d] * __expf(partial[i * (dim + 2) + dim] - largest);
    out[d] = narrow<T>(value / total);
  }
}

template <class T, class Element>
void launch_element(const ChosenAttentionParams& p, Stream stream) {
  const auto run = [&](auto kernel) {
    const Layout l = layout_of(p, sizeof(Element));
    check_launch(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(l.bytes)),
        "attention to chosen positions of this head size");
    const int64_t group = p.q.heads / p.kv_heads;
    const Grid grid{
        dim3(static_cast<unsigned>(p.count), static_cast<unsigned>(p.kv_heads * ceil_div(group, kHeads)),
             static_cast<unsigned>(p.parts)),
        dim3(kThreads), l.bytes};
    launch("attention to chosen positions", kernel, grid, stream, p);
  };
  if (p.v.dim <= 128) {
    run(chosen_attention_kernel<T, Element, 4>);
  } else if (p.v.dim <= 256) {
    run(chosen_attention_kernel<T, Element, 8>);
  } else {
    run(chosen_attention_kernel<T, Element, 16>);
  }
  const Grid grid{dim3(static_cast<unsigned>(p.count), static_cast<unsigned>(p.q.heads)), dim3(128)};
  launch("merge of chosen positions", merge_chosen_kernel<T>, grid, stream, p);
}

}  // namespace

void launch_chosen_attention(const ChosenAttentionParams& p, Stream stream) {
  if (p.count == 0) return;
  check_launch(p.k.type == p.v.type && p.v.dim <= 512 ? cudaSuccess : cudaErrorInvalidValue,
               "attention to chosen positions of this head size");
  visit_activations(p.q.type, [&](auto element) {
    using T = decltype(element);
    visit_cache(p.k.type, "attention over a cache of this type",
                [&](auto cached) { launch_element<T, decltype(cached)>(p, stream); });
  });
}

}  // namespace sluice::kernels::cuda

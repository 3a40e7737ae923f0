// Scores of 32 tokens for all queries of a KV head at a time, then the softmax of each row of scores, then of each token the
// largest over the heads. Queries are few (some rows of a look-ahead), so that keys are read once: bytes of the keys twice
// for one matrix of scores.
#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/key_weights/key_weights_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kKeysOfBlock = 32, kKeyThreads = 128;

// grid: (pieces of 32 tokens, KV heads). Shared memory: [32, dim + 1] keys.
template <class Element>
__global__ void __launch_bounds__(kKeyThreads) key_scores_kernel(const KeyWeightParams p) {
  extern __shared__ float keys[];
  const int dim = static_cast<int>(p.keys.dim), pitch = dim + 1, group = p.heads / p.kv_heads;
  const int first = static_cast<int>(blockIdx.x) * kKeysOfBlock, kv_head = static_cast<int>(blockIdx.y);
  for (int i = threadIdx.x; i < kKeysOfBlock * dim; i += kKeyThreads) {
    const int token = first + i / dim;
    float value = 0.0f;
    if (token < p.tokens) {
      const int64_t block = p.blocks[token / p.block_size], slot = token % p.block_size;
      value = widen(
          static_cast<const Element*>(p.keys.data)[block * p.keys.stride_block + slot * p.keys.stride_slot +
                                                   kv_head * p.keys.stride_head + i % dim]);
    }
    keys[i / dim * pitch + i % dim] = value;
  }
  __syncthreads();
  const int lane = threadIdx.x % 32, token = first + lane;
  for (int query = threadIdx.x / 32; query < p.rows * group; query += kKeyThreads / 32) {
    const int64_t row = int64_t{query / group} * p.heads + kv_head * group + query % group;
    const float* q = p.queries + row * dim;
    float score = 0.0f;
    for (int i = 0; i < dim; ++i) score = fmaf(q[i], keys[lane * pitch + i], score);
    score *= p.scale;
    if (p.softcap > 0.0f) score = p.softcap * tanhf(score / p.softcap);
    if (token < p.tokens) p.scores[row * p.tokens + token] = score;
  }
}

// grid: (rows * heads). Scores become weights.
__global__ void __launch_bounds__(256) key_softmax_kernel(const KeyWeightParams p) {
  __shared__ float shared[8];
  float* scores = p.scores + int64_t{blockIdx.x} * p.tokens;
  const auto over_block = [&](float v, bool sum) {
    v = sum ? warp_sum(v) : warp_max(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = shared[0];
    for (int w = 1; w < 8; ++w) v = sum ? v + shared[w] : fmaxf(v, shared[w]);
    return v;
  };
  float largest = -INFINITY, sum = 0.0f;
  for (int i = threadIdx.x; i < p.tokens; i += 256) largest = fmaxf(largest, scores[i]);
  largest = over_block(largest, false);
  for (int i = threadIdx.x; i < p.tokens; i += 256) sum += expf(scores[i] - largest);
  sum = over_block(sum, true);
  for (int i = threadIdx.x; i < p.tokens; i += 256) scores[i] = expf(scores[i] - largest) / sum;
}

// grid: (pieces of the tokens, rows)
__global__ void __launch_bounds__(256) key_largest_kernel(const KeyWeightParams p) {
  const int64_t token = int64_t{blockIdx.x} * 256 + threadIdx.x, row = blockIdx.y;
  if (token >= p.tokens) return;
  float largest = p.largest[row * p.tokens + token];
  for (int head = 0; head < p.heads; ++head)
    largest = fmaxf(largest, p.scores[(row * p.heads + head) * p.tokens + token]);
  p.largest[row * p.tokens + token] = largest;
}

template <class Element>
void launch_scores(const KeyWeightParams& p, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div(p.tokens, kKeysOfBlock)), static_cast<unsigned>(p.kv_heads));
  key_scores_kernel<Element>
      <<<grid, kKeyThreads, kKeysOfBlock* static_cast<size_t>(p.keys.dim + 1) * sizeof(float), stream>>>(p);
}

}  // namespace

void launch_key_weights(const KeyWeightParams& p, Stream stream) {
  if (p.keys.type == DType::BF16)
    launch_scores<bf16>(p, stream);
  else
    launch_scores<__nv_fp8_e4m3>(p, stream);
  key_softmax_kernel<<<static_cast<unsigned>(p.rows * p.heads), 256, 0, stream>>>(p);
  key_largest_kernel<<<dim3(static_cast<unsigned>(ceil_div(p.tokens, 256)), static_cast<unsigned>(p.rows)),
                       256, 0, stream>>>(p);
  check_launch(cudaGetLastError(), "key weights");
}

}  // namespace sluice::kernels::cuda

// Latent attention beside its matrix work.
#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/latent/latent_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ void rotate_pair(const WriteLatentParams& p, const bf16* from, bf16* to,
                                            int64_t token, int pair) {
  const float* angle = p.angles + token * p.angle_stride + pair * 2;
  const int first = p.interleaved != 0 ? 2 * pair : pair;
  const int second = p.interleaved != 0 ? first + 1 : first + p.rope_dim / 2;
  const float c = angle[0], s = angle[1], a = widen(from[first]), b = widen(from[second]);
  to[first] = narrow<bf16>(a * c - b * s);
  to[second] = narrow<bf16>(b * c + a * s);
}

// A block for each token: the first warp norms, the second rotates the key, the others the queries.
__global__ void __launch_bounds__(kThreads) write_latent_kernel(const WriteLatentParams p) {
  wait_for_producer();
  allow_dependents();
  const int64_t token = blockIdx.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, pairs = p.rope_dim / 2;
  if (warp >= 2) {
    bf16* query = static_cast<bf16*>(p.query.data) + token * p.query.stride_n + p.query.dim - p.rope_dim;
    for (int i = threadIdx.x - 64; i < p.query.heads * pairs; i += kThreads - 64) {
      bf16* head = query + i / pairs * p.query.stride_h;
      rotate_pair(p, head, head, token, i % pairs);
    }
    return;
  }
  const TableView& t = p.table;
  const int32_t position = t.positions[token];
  const int64_t block = t.blocks[t.row_begin[t.sequence[token]] + position / t.block_size];
  bf16* out = static_cast<bf16*>(p.cache.data) + block * p.cache.stride_block +
              position % t.block_size * p.cache.stride_slot;
  const bf16* x = static_cast<const bf16*>(p.latent.data) + token * p.latent.stride_n;
  if (warp == 1) {
    for (int pair = lane; pair < pairs; pair += 32)
      rotate_pair(p, x + p.latent_dim, out + p.latent_dim, token, pair);
    return;
  }
  float sum = 0.0f;
  for (int i = lane * 8; i < p.latent_dim; i += 256) {
    float f[8];
    load8<true>(x + i, 8, f);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += f[j] * f[j];
  }
  const float factor = rsqrtf(warp_sum(sum) / static_cast<float>(p.latent_dim) + p.eps);
  for (int i = lane * 8; i < p.latent_dim; i += 256) {
    float f[8];
    load8<true>(x + i, 8, f);
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] *= factor * (p.gain != nullptr ? p.gain[i + j] : 1.0f);
    store8<true>(out + i, 8, f);
  }
}

// A warp for each vector.
__global__ void __launch_bounds__(kThreads) gather_latents_kernel(const GatherLatentsParams p) {
  wait_for_producer();
  allow_dependents();
  const int64_t row = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  if (row >= p.count) return;
  const int32_t slot = p.slots[row];
  const bf16* from = static_cast<const bf16*>(p.cache.data) + slot / p.block_size * p.cache.stride_block +
                     slot % p.block_size * p.cache.stride_slot;
  bf16* to = static_cast<bf16*>(p.out) + row * p.cache.dim;
  for (int64_t i = threadIdx.x % 32 * 8; i < p.cache.dim; i += 256)
    *reinterpret_cast<uint4*>(to + i) = load_activation(from + i);
}

// A block for each row of the result.
__global__ void __launch_bounds__(kThreads) stack_latent_kernel(const StackLatentParams p) {
  allow_dependents();
  wait_for_producer();
  const int rows = p.nope_dim + p.rope_dim + p.value_dim, cols = p.latent_dim + p.rope_dim;
  const int head = blockIdx.x / rows, row = blockIdx.x % rows;
  const auto* keys = static_cast<const bf16*>(p.key_up[head]);
  const auto* values = static_cast<const bf16*>(p.value_up[head]);
  bf16* out = static_cast<bf16*>(p.out) + int64_t{blockIdx.x} * cols;
  for (int i = threadIdx.x; i < cols; i += kThreads) {
    bf16 value = __float2bfloat16(0.0f);
    if (row < p.nope_dim) {
      if (i < p.latent_dim) value = keys[i * p.key_stride + row];
    } else if (row < p.nope_dim + p.rope_dim) {
      if (i == p.latent_dim + row - p.nope_dim) value = __float2bfloat16(1.0f);
    } else if (i < p.latent_dim) {
      value = values[(row - p.nope_dim - p.rope_dim) * p.value_stride + i];
    }
    out[i] = value;
  }
}

}  // namespace

bool write_latent_fits(const WriteLatentParams& p) {
  return p.latent.type == DType::BF16 && p.query.type == DType::BF16 && p.cache.type == DType::BF16 &&
         aligned16(p.latent.data) && p.latent.stride_n % 8 == 0 && aligned16(p.cache.data) &&
         p.cache.stride_slot % 8 == 0 && p.cache.stride_block % 8 == 0 && p.latent_dim % 8 == 0 &&
         p.rope_dim % 2 == 0 && p.latent.dim == p.latent_dim + p.rope_dim && p.cache.dim == p.latent.dim;
}

void launch_write_latent(const WriteLatentParams& p, Stream stream) {
  if (p.latent.n == 0) return;
  launch("write_latent", write_latent_kernel, {dim3(static_cast<unsigned>(p.latent.n)), dim3(kThreads)},
         stream, p);
}

void launch_gather_latents(const GatherLatentsParams& p, Stream stream) {
  if (p.count == 0) return;
  launch("gather_latents", gather_latents_kernel,
         {dim3(static_cast<unsigned>(ceil_div(p.count, kThreads / 32))), dim3(kThreads)}, stream, p);
}

void launch_stack_latent(const StackLatentParams& p, Stream stream) {
  launch("stack_latent", stack_latent_kernel,
         {dim3(static_cast<unsigned>(p.heads * (p.nope_dim + p.rope_dim + p.value_dim))), dim3(kThreads)},
         stream, p);
}

}  // namespace sluice::kernels::cuda

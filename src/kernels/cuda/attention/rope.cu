// Positions and the KV cache: rotation angles, rotation in place, storing keys and values, copying blocks.
#include "kernels/cuda/attention/block_of.cuh"
#include "kernels/cuda/common/device.cuh"

namespace sluice::kernels::cuda {
namespace {

__global__ void __launch_bounds__(256) angles_kernel(const AnglesParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= p.n * p.pairs) return;
  const int64_t token = i / p.pairs;
  const int64_t row = p.rows != nullptr ? p.rows[token] : 0;
  const float magnitude = row == 0 ? p.magnitude : p.magnitude_beyond;
  // The angle is rounded to f32, as the contract's reference has it; its cosine needs f64, for it may be many turns.
  const int64_t pair = i % p.pairs, section = p.sections != nullptr ? p.sections[pair] : 0;
  const double angle = __fmul_rn(static_cast<float>(p.positions[section * p.n + token]),
                                 p.inverse_frequency[row * p.pairs + pair]);
  double s, c;
  sincos(angle, &s, &c);
  p.angles[2 * i] = magnitude * static_cast<float>(c);
  p.angles[2 * i + 1] = magnitude * static_cast<float>(s);
}

// One thread per pair of each head.
template <class T>
__global__ void __launch_bounds__(256) rope_kernel(const RopeParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= p.x.n * p.x.heads * p.pairs) return;
  const int64_t pair = i % p.pairs, row = i / p.pairs;
  const int64_t token = row / p.x.heads, head = row % p.x.heads;
  T* x = static_cast<T*>(p.x.data) + token * p.x.stride_n + head * p.x.stride_h;
  const float* angle = p.angles + token * p.angle_stride + pair * 2;
  const float c = angle[0], s = angle[1];
  T* first = x + (p.interleaved != 0 ? 2 * pair : pair);
  T* second = first + (p.interleaved != 0 ? 1 : p.pairs);
  const float a = widen(*first), b = widen(*second);
  *first = narrow<T>(a * c - b * s);
  *second = narrow<T>(b * c + a * s);
}

// Eight elements from `first` on and eight from `second` on of a head in the cache.
__device__ __forceinline__ void store_fp8(uint8_t* head, int64_t first, int64_t second, uint4 low,
                                          uint4 high) {
  float f[8];
  unpack8(low, f);
  *reinterpret_cast<uint2*>(head + first) = round8(f, 1.0f);
  unpack8(high, f);
  *reinterpret_cast<uint2*>(head + second) = round8(f, 1.0f);
}

// Norms a head whose elements `pieces` neighbouring lanes hold.
__device__ __forceinline__ void norm_head(float (&a)[8], float (&b)[8], const float (&gain)[16], int pieces,
                                          float eps) {
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < 8; ++j) sum += a[j] * a[j] + b[j] * b[j];
  for (int o = pieces / 2; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  const float factor = rsqrtf(sum / static_cast<float>(16 * pieces) + eps);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    a[j] *= factor * gain[j];
    b[j] *= factor * gain[8 + j];
  }
}

// Eight pairs of one head of one token at a time: heads of q, then of k, then of v. 16 bytes per access.
template <bool Normed>
__global__ void __launch_bounds__(256) rope_write_kernel(const RopeWriteParams p) {
  const View &q = p.rope.x, &key = p.write.key, &value = p.write.value;
  const auto pieces = static_cast<uint32_t>(q.dim / 16), turned = static_cast<uint32_t>(p.rope.pairs / 8);
  const auto heads = static_cast<uint32_t>(q.heads + 2 * key.heads);
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, count = q.n * heads * pieces;
  const int64_t i = min(index, count - 1);  // lanes of a warp meet in the norm
  const int64_t row = i / pieces, token = row / heads;
  const auto piece = static_cast<uint32_t>(i - row * pieces);
  int64_t head = row - token * heads;
  const View& from = head < q.heads ? q : head < q.heads + key.heads ? key : value;
  const bool is_query = head < q.heads, is_value = head >= q.heads + key.heads;
  if (!is_query) head -= q.heads + (is_value ? key.heads : 0);
  // What is not rotated lies behind what is.
  const bool neighbours = p.rope.interleaved != 0 || piece >= turned;
  const int64_t first = neighbours ? piece * 16 : piece * 8;
  const int64_t second = neighbours ? first + 8 : first + p.rope.pairs;
  float gains[16];
  if constexpr (Normed) {
    const float* gain = is_value ? nullptr : is_query ? p.q_gain : p.k_gain;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      gains[j] = gain != nullptr ? __ldg(gain + first + j) : 1.0f;
      gains[8 + j] = gain != nullptr ? __ldg(gain + second + j) : 1.0f;
    }
  }
  // In this order: attention needs the shared memory of whole multiprocessors, which is free when the GEMM in front has
  // ended.
  wait_for_producer();
  allow_dependents();
  if (!Normed && index >= count) return;
  bf16* x = static_cast<bf16*>(from.data) + token * from.stride_n + head * from.stride_h;
  uint4 low = load_activation(x + first), high = load_activation(x + second);
  // All that is read is on its way at once.
  const bool rotates = !is_value && piece < turned;
  float turn[16];
  if (rotates) {
    const float* angle = p.rope.angles + token * p.rope.angle_stride + piece * 16;
#pragma unroll
    for (int j = 0; j < 16; j += 4)
      *reinterpret_cast<float4*>(turn + j) = *reinterpret_cast<const float4*>(angle + j);
  }
  int64_t slot = 0;
  const int64_t block = is_query ? 0 : block_of(p.write.table, token, slot);
  float a[8], b[8];
  unpack8(low, a);
  unpack8(high, b);
  if constexpr (Normed) {
    float normed_a[8], normed_b[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) normed_a[j] = a[j], normed_b[j] = b[j];
    norm_head(normed_a, normed_b, gains, static_cast<int>(pieces), p.eps);
    if (index >= count) return;
#pragma unroll
    for (int j = 0; j < 8 && !is_value; ++j) a[j] = normed_a[j], b[j] = normed_b[j];
  }
  if (rotates) {
    const auto rotate = [&](float& u, float& v, int pair) {
      const float c = turn[2 * pair], s = turn[2 * pair + 1], u0 = u;
      u = u0 * c - v * s;
      v = v * c + u0 * s;
    };
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (p.rope.interleaved == 0) {
        rotate(a[j], b[j], j);
      } else if (j < 4) {
        rotate(a[2 * j], a[2 * j + 1], j);
      } else {
        rotate(b[2 * j - 8], b[2 * j - 7], j);
      }
    }
  }
  if (!is_value) {
    low = pack8(a);
    high = pack8(b);
  }
  bf16* out = x;
  if (!is_query) {
    const CacheView& cache = is_value ? p.write.v : p.write.k;
    const int64_t place = block * cache.stride_block + slot * cache.stride_slot + head * cache.stride_head;
    if (cache.type == DType::F8_E4M3)
      return store_fp8(static_cast<uint8_t*>(cache.data) + place, first, second, low, high);
    out = static_cast<bf16*>(cache.data) + place;
  }
  *reinterpret_cast<uint4*>(out + first) = low;
  *reinterpret_cast<uint4*>(out + second) = high;
}

// One warp stores one head of one token; keys first, then values.
template <class T>
__global__ void __launch_bounds__(256) write_kernel(const WriteKvParams p) {
  // In this order: attention needs the shared memory of whole multiprocessors, which is free when the GEMM in front has
  // ended.
  wait_for_producer();
  allow_dependents();
  const int lane = threadIdx.x % 32;
  const int64_t heads = p.key.heads, n = p.key.n;
  const int64_t row = int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= n * heads * (p.v.data != nullptr ? 2 : 1)) return;
  const bool is_value = row >= n * heads;
  const View& source = is_value ? p.value : p.key;
  const CacheView& cache = is_value ? p.v : p.k;
  const int64_t token = row % (n * heads) / heads, head = row % heads;
  int64_t slot;
  const int64_t block = block_of(p.table, token, slot);
  const T* x = static_cast<const T*>(source.data) + token * source.stride_n + head * source.stride_h;
  const int64_t place = block * cache.stride_block + slot * cache.stride_slot + head * cache.stride_head;
  if (cache.type == DType::BF16) {
    bf16* out = static_cast<bf16*>(cache.data) + place;
    const bool vector = cache.dim % 8 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0 &&
                        reinterpret_cast<uintptr_t>(out) % 16 == 0;
    if (vector) {
      for (int64_t i = lane * 8; i < cache.dim; i += 256) {
        float f[8];
        load8<true>(x + i, 8, f);
        store8<true>(out + i, 8, f);
      }
    } else {
      for (int64_t i = lane; i < cache.dim; i += 32) out[i] = narrow<bf16>(widen(x[i]));
    }
  } else if (cache.type == DType::F16) {
    for (int64_t i = lane; i < cache.dim; i += 32)
      static_cast<__half*>(cache.data)[place + i] = __float2half(widen(x[i]));
  } else if (cache.type == DType::F8_E4M3) {
    for (int64_t i = lane; i < cache.dim; i += 32)
      static_cast<__nv_fp8_storage_t*>(cache.data)[place + i] =
          __nv_cvt_float_to_fp8(widen(x[i]), __NV_SATFINITE, __NV_E4M3);
  } else if (cache.type == DType::F32) {
    for (int64_t i = lane; i < cache.dim; i += 32) static_cast<float*>(cache.data)[place + i] = widen(x[i]);
  } else {
    float largest = 0.0f;
    for (int64_t i = lane; i < cache.dim; i += 32) largest = fmaxf(largest, fabsf(widen(x[i])));
    largest = warp_max(largest);
    const float scale = largest / 127.0f, inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    if (lane == 0)
      cache.scales[block * cache.scale_stride_block + slot * cache.scale_stride_slot + head] = scale;
    for (int64_t i = lane; i < cache.dim; i += 32)
      static_cast<int8_t*>(cache.data)[place + i] = static_cast<int8_t>(rintf(widen(x[i]) * inverse));
  }
}

// grid: (pieces, moves)
__global__ void __launch_bounds__(256) copy_kernel(const CopyBlocksParams p) {
  allow_dependents();
  wait_for_producer();
  char* data = static_cast<char*>(p.data);
  const char* from = data + p.moves[2 * blockIdx.y] * p.block_bytes;
  char* to = data + p.moves[2 * blockIdx.y + 1] * p.block_bytes;
  const int64_t step = int64_t{gridDim.x} * blockDim.x,
                first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (p.block_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0) {
    for (int64_t i = first; i < p.block_bytes / 16; i += step)
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  } else {
    for (int64_t i = first; i < p.block_bytes; i += step) to[i] = from[i];
  }
}

unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>(ceil_div(threads, 256));
}

}  // namespace

void launch_angles(const AnglesParams& p, Stream stream) {
  if (p.n * p.pairs == 0) return;
  launch("angles", angles_kernel, {dim3(blocks_for(p.n * p.pairs)), dim3(256)}, stream, p);
}

void launch_rope(const RopeParams& p, Stream stream) {
  const int64_t count = p.x.n * p.x.heads * p.pairs;
  if (count == 0) return;
  RopeWriteParams whole = blank<RopeWriteParams>();
  whole.rope = p;
  if (rope_write_fits(whole)) return launch_rope_write(whole, stream);
  visit_activations(p.x.type, [&](auto element) {
    launch("rope", rope_kernel<decltype(element)>, {dim3(blocks_for(count)), dim3(256)}, stream, p);
  });
}

bool rope_write_fits(const RopeWriteParams& p) {
  const auto view_fits = [&](const View& v) {
    return v.data == nullptr || (v.type == DType::BF16 && aligned16(v.data) && v.stride_n % 8 == 0 &&
                                 v.stride_h % 8 == 0 && v.dim == p.rope.x.dim);
  };
  const auto cache_fits = [&](const CacheView& c) {
    const bool plain = c.type == DType::BF16 || c.type == DType::F8_E4M3;
    return c.data == nullptr || (plain && aligned16(c.data) && c.stride_block % 8 == 0 &&
                                 c.stride_slot % 8 == 0 && c.stride_head % 8 == 0);
  };
  const int64_t dim = p.rope.x.dim, pieces = dim / 16;
  const bool in_warps = p.normed == 0 || (pieces <= 32 && (pieces & (pieces - 1)) == 0);
  return in_warps && dim % 16 == 0 && p.rope.pairs % 8 == 0 && 2 * p.rope.pairs <= dim &&
         aligned16(p.rope.angles) && p.rope.angle_stride % 4 == 0 && view_fits(p.rope.x) &&
         view_fits(p.write.key) && view_fits(p.write.value) && cache_fits(p.write.k) &&
         cache_fits(p.write.v) && p.write.key.heads == p.write.value.heads;
}

void launch_rope_write(const RopeWriteParams& p, Stream stream) {
  const int64_t count = p.rope.x.n * (p.rope.x.heads + 2 * p.write.key.heads) * (p.rope.x.dim / 16);
  if (count == 0) return;
  if (rope_heads_fit(p)) return launch_rope_heads(p, stream);
  launch("rope_write", p.normed != 0 ? rope_write_kernel<true> : rope_write_kernel<false>,
         {dim3(blocks_for(count)), dim3(256)}, stream, p);
}

void launch_write_kv(const WriteKvParams& p, Stream stream) {
  const int64_t rows = p.key.n * p.key.heads * (p.v.data != nullptr ? 2 : 1);
  if (rows == 0) return;
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(rows, 8))), dim3(256)};
  visit_activations(p.key.type, [&](auto element) {
    launch("write_kv", write_kernel<decltype(element)>, grid, stream, p);
  });
}

void launch_copy_blocks(const CopyBlocksParams& p, Stream stream) {
  if (p.count == 0) return;
  const int64_t pieces = ceil_div(p.block_bytes, 16 * 256);
  const Grid grid{dim3(static_cast<unsigned>(pieces < 64 ? pieces : 64), static_cast<unsigned>(p.count)),
                  dim3(256)};
  launch("copy_blocks", copy_kernel, grid, stream, p);
}

}  // namespace sluice::kernels::cuda

// Positions of whole heads of 128 elements, as most models have them: what rope.cu does for any others.
#include "kernels/cuda/attention/attention_params.h"
#include "kernels/cuda/common/device.cuh"

namespace sluice::kernels::cuda {
namespace {

// An entry of the step's tables, which were there before the first of the step's layers began.
__device__ __forceinline__ int32_t load_entry(const int32_t* p) {
  int32_t v;
  asm volatile("ld.global.cg.s32 %0,[%1];" : "=r"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ void load_floats(const float* from, float (&to)[16]) {
#pragma unroll
  for (int j = 0; j < 16; j += 4)
    asm volatile("ld.global.v4.f32 {%0,%1,%2,%3},[%4];"
                 : "=f"(to[j]), "=f"(to[j + 1]), "=f"(to[j + 2]), "=f"(to[j + 3])
                 : "l"(from + j)
                 : "memory");
}

// Of a head of 128 elements a lane has elements [first, first + 8) and those 64 further.
constexpr int kRopeThreads = 256, kHeadDim = 128, kHeadPairs = kHeadDim / 2, kHeadLanes = kHeadDim / 16;
struct HeadPiece {
  uint4 low, high;
};
struct HeadGain {
  float low[8], high[8];

  __device__ __forceinline__ void load(const float* gain, int first) {
#pragma unroll
    for (int j = 0; j < 8; j += 4) {
      const float4 one = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
      *reinterpret_cast<float4*>(low + j) =
          gain != nullptr ? __ldg(reinterpret_cast<const float4*>(gain + first + j)) : one;
      *reinterpret_cast<float4*>(high + j) =
          gain != nullptr ? __ldg(reinterpret_cast<const float4*>(gain + first + kHeadPairs + j)) : one;
    }
  }
};

// Of eight neighbouring lanes, which have a head.
template <bool Normed>
__device__ __forceinline__ void turn_head(HeadPiece& x, const HeadGain& gain, const float (&turn)[16],
                                          float eps) {
  float a[8], b[8];
  unpack8(x.low, a);
  unpack8(x.high, b);
  if constexpr (Normed) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += a[j] * a[j] + b[j] * b[j];
    const unsigned together = 0xffu << (threadIdx.x % 32 & 24);
#pragma unroll
    for (int o = kHeadLanes / 2; o > 0; o >>= 1) sum += __shfl_xor_sync(together, sum, o);
    const float factor = rsqrtf(sum / static_cast<float>(kHeadDim) + eps);
#pragma unroll
    for (int j = 0; j < 8; ++j) a[j] *= factor * gain.low[j], b[j] *= factor * gain.high[j];
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float c = turn[2 * j], s = turn[2 * j + 1], a0 = a[j];
    a[j] = a0 * c - b[j] * s;
    b[j] = b[j] * c + a0 * s;
  }
  x.low = pack8(a);
  x.high = pack8(b);
}

// The same as rope_write_kernel for heads of 128 elements that are rotated whole, as halves, and a bf16 cache. Eight lanes
// have kHeads heads of a token, `groups` apart. All that the kernel in front does not make is on its way before that has
// ended: where the token's keys and values go, and gains.
template <bool Normed, int kHeads>
__global__ void __launch_bounds__(kRopeThreads)
    rope_heads_kernel(const RopeWriteParams p, const int groups, const int early) {
  const View &q = p.rope.x, &key = p.write.key, &value = p.write.value;
  const int group = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / kHeadLanes);
  const int token = group / groups, head0 = group % groups, first = threadIdx.x % kHeadLanes * 8;
  const int q_heads = static_cast<int>(q.heads), kv_heads = static_cast<int>(key.heads);
  const bool live = token < static_cast<int>(q.n);
  int64_t block = 0, slot = 0;
  if (live && kv_heads > 0) {
    const TableView& t = p.write.table;
    const int32_t position = load_entry(t.positions + token), row = load_entry(t.sequence + token);
    slot = position % t.block_size;
    block = load_entry(t.blocks + load_entry(t.row_begin + row) + position / t.block_size);
  }
  HeadGain gain;
  if (Normed && kHeads == 1) gain.load(head0 < q_heads ? p.q_gain : p.k_gain, first);
  // Early: attention finds room, and brings keys of earlier steps, as blocks of the GEMM in front end.
  if (early != 0) allow_dependents();
  wait_for_producer();
  allow_dependents();
  if (!live) return;
  const auto from = [&](int head) {
    const bool is_query = head < q_heads, is_key = head < q_heads + kv_heads;
    const bf16* data = static_cast<const bf16*>(is_query ? q.data : is_key ? key.data : value.data);
    const int64_t stride_n = is_query ? q.stride_n
                             : is_key ? key.stride_n
                                      : value.stride_n,
                  stride_h = is_query ? q.stride_h
                             : is_key ? key.stride_h
                                      : value.stride_h;
    return data + token * stride_n +
           (head - (is_query ? 0
                    : is_key ? q_heads
                             : q_heads + kv_heads)) *
               stride_h;
  };
  HeadPiece x[kHeads];
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    const int head = head0 + i * groups;
    if (head >= q_heads + 2 * kv_heads) continue;
    const bf16* at = from(head) + first;
    x[i] = {load_activation(at), load_activation(at + kHeadPairs)};
  }
  float turn[16];
  load_floats(p.rope.angles + token * p.rope.angle_stride + 2 * first, turn);
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    const int head = head0 + i * groups;
    if (head >= q_heads + 2 * kv_heads) continue;
    const bool is_query = head < q_heads, is_key = !is_query && head < q_heads + kv_heads;
    if (Normed && kHeads > 1) gain.load(is_query ? p.q_gain : p.k_gain, first);
    if (is_query || is_key) turn_head<Normed>(x[i], gain, turn, p.eps);
    bf16* out = const_cast<bf16*>(from(head));
    if (!is_query) {
      const CacheView& cache = is_key ? p.write.k : p.write.v;
      const int kv_head = head - q_heads - (is_key ? 0 : kv_heads);
      out = static_cast<bf16*>(cache.data) + block * cache.stride_block + slot * cache.stride_slot +
            kv_head * cache.stride_head;
    }
    *reinterpret_cast<uint4*>(out + first) = x[i].low;
    *reinterpret_cast<uint4*>(out + first + kHeadPairs) = x[i].high;
  }
}

}  // namespace

bool rope_heads_fit(const RopeWriteParams& p) {
  const auto cache_fits = [&](const CacheView& c) { return c.data != nullptr && c.type == DType::BF16; };
  const int64_t heads = p.rope.x.heads + 2 * p.write.key.heads;
  return p.rope.x.dim == kHeadDim && p.rope.pairs == kHeadPairs && p.rope.interleaved == 0 &&
         aligned16(p.q_gain) && aligned16(p.k_gain) && p.rope.x.n * heads < (int64_t{1} << 30) &&
         (p.write.key.heads == 0 || (cache_fits(p.write.k) && cache_fits(p.write.v)));
}

// A recorded step starts when all in front of it has ended: what earlier steps wrote is there for each of its kernels.
bool recorded(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_launch(cudaStreamIsCapturing(stream, &status), "rope_write");
  return status == cudaStreamCaptureStatusActive;
}

// Many tokens: several heads a lane, so that enough is on its way.
void launch_rope_heads(const RopeWriteParams& p, Stream stream) {
  constexpr int64_t kManyHeads = 16384;
  constexpr int kTogether = 4;
  const int64_t heads = p.rope.x.heads + 2 * p.write.key.heads;
  const bool many = p.rope.x.n * heads >= kManyHeads;
  const int64_t groups = many ? ceil_div(heads, kTogether) : heads;
  // Few: small blocks, which find room beside those of the GEMM in front and of attention.
  const int64_t threads = many ? kRopeThreads : kRopeThreads / 2;
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(p.rope.x.n * groups * kHeadLanes, threads))),
                  dim3(static_cast<unsigned>(threads))};
  const auto kernel = p.normed != 0
                          ? (many ? rope_heads_kernel<true, kTogether> : rope_heads_kernel<true, 1>)
                          : (many ? rope_heads_kernel<false, kTogether> : rope_heads_kernel<false, 1>);
  launch("rope_write", kernel, grid, stream, p, static_cast<int>(groups), !many && recorded(stream) ? 1 : 0);
}

}  // namespace sluice::kernels::cuda

// decode_attention.cu's work where there is little of it: a cluster of blocks has one (token, kv head), each block an equal
// run of its units, and they meet in their shared memory. No plan, and nothing goes through memory but the result: one
// sequence of 576 tokens takes 4.8 us on an H200 instead of 6.3, eight of them 8.5 instead of 12.0 (bench_gpu small parts).
#include "kernels/cuda/attention/decode_attention_consumer.cuh"
#include "kernels/cuda/attention/decode_attention_producer.cuh"
#include "kernels/cuda/common/cluster.cuh"

namespace sluice::kernels::cuda {
namespace {

__device__ __forceinline__ uint32_t address_in(uint32_t address, uint32_t rank) {
  uint32_t result;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(result) : "r"(address), "r"(rank));
  return result;
}
__device__ __forceinline__ float load_shared(uint32_t address) {
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}
__device__ __forceinline__ float4 load_shared4(uint32_t address) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// A block's part of its head, behind the one query that it has: values [group, Dim], then maxima, then sums.
template <class L>
struct FewPart {
  static constexpr int kValues = L::kQueries + L::kQueryBytes, kMaxima = kValues + kMaxGroup * L::kDim * 4;
  static constexpr int kSums = kMaxima + kMaxGroup * 4, kEnd = kSums + kMaxGroup * 4;
  static_assert(kEnd <= L::kValues, "in the room of the other queries");
};

template <class L>
__device__ __forceinline__ void produce(const OneArguments& p, const Walk& walk, int position,
                                        uint8_t* shared) {
  OneProducer<L> producer(p, Ranges{}, shared);
  const int token = walk.token;
  producer.turn_to(position, p.table.row_begin[p.table.sequence[token]]);
  const int sent = producer.send_ahead(walk);
  wait_for_producer();
  producer.push_work({token, walk.head, walk.unit, walk.units, walk.count(), 0, 0, position});
  const int begin = first_key(position, p.window) / kKeys + walk.unit;
  for (int unit = begin + sent; unit < begin + walk.count(); ++unit) producer.send_unit(unit, walk.head);
}

// The block's units; then its part is in shared memory.
template <class L>
__device__ __forceinline__ void consume_few(const OneArguments& p, const Walk& walk, int position,
                                            uint8_t* shared) {
  using F = FewPart<L>;
  const uint32_t base = shared_address(shared), full = base + L::kBarriers, empty = full + 8 * L::kStages;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  OneShare<L> share;
  barrier_wait(empty + 8 * L::kStages, 0);  // the query
  share.start(p, walk.head, shared + L::kQueries, lane);
  StageRing ring{base, full, empty};
  consume_units(share, p, ring, {position, walk.unit, walk.count()});
  share.merge_partial(reinterpret_cast<float*>(shared + L::kValues),
                      reinterpret_cast<float*>(shared + L::kMaxima),
                      reinterpret_cast<float*>(shared + L::kSums), warp, p.group, lane);
  sync_warps();
  auto* const values = reinterpret_cast<float*>(shared + F::kValues);
  for (int e = threadIdx.x * 4; e < p.group * L::kDim; e += kWarps * 32 * 4) {
    const int r = e / L::kDim, d = e % L::kDim;
    const Part part = merge_warps<L>(shared, r, d);
    *reinterpret_cast<float4*>(values + e) = part.values;
    if (d != 0) continue;
    reinterpret_cast<float*>(shared + F::kMaxima)[r] = part.maximum;
    reinterpret_cast<float*>(shared + F::kSums)[r] = part.sum;
  }
}

// Every block makes its share of the result of all blocks' parts.
template <class L>
__device__ __forceinline__ void merge_blocks(const OneArguments& p, const Walk& walk, int rank, int blocks,
                                             uint32_t shared) {
  using F = FewPart<L>;
  bf16* out = p.out + walk.token * p.out_stride_n + int64_t{walk.head} * p.group * p.out_stride_h;
  const int stride = blocks * kWarps * 32;
  // Neighbouring threads take neighbouring elements; the first elements go to the first block.
  for (int i = rank * kWarps * 32 + static_cast<int>(threadIdx.x); i * 4 < p.group * L::kDim; i += stride) {
    const int e = i * 4, r = e / L::kDim, d = e % L::kDim;
    const Part whole = merge<8>(blocks, [&](int block) {
      const uint32_t there = address_in(shared, static_cast<uint32_t>(block));
      return Part{load_shared(there + F::kMaxima + r * 4), load_shared(there + F::kSums + r * 4),
                  load_shared4(there + F::kValues + e * 4)};
    });
    store_result(out + r * p.out_stride_h + d, whole,
                 p.sinks != nullptr ? p.sinks[walk.head * p.group + r] * kLog2E : -INFINITY);
  }
}

// grid: (kv heads of all tokens) clusters
template <class L>
__global__ void __launch_bounds__(kThreads, 1)
    few_kernel(const __grid_constant__ OneArguments p, int blocks) {
  using F = FewPart<L>;
  require_bulk_copies();
  extern __shared__ __align__(128) uint8_t shared[];
  allow_dependents();
  const int rank = static_cast<int>(blockIdx.x) % blocks, pair = static_cast<int>(blockIdx.x) / blocks;
  const int token = pair / p.kv_heads, position = p.table.positions[token];
  const int units = units_of(position, p.window);
  const EvenParts parts = EvenParts::of(units, blocks);
  const Walk walk{parts.start(rank), parts.start(rank + 1), token,
                  pair % p.kv_heads, parts.start(rank),     units};
  if (threadIdx.x == 0) {
    const uint32_t full = shared_address(shared) + L::kBarriers, empty = full + 8 * L::kStages;
    for (int s = 0; s < L::kStages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, kWarps);
    }
    barrier_init(empty + 8 * L::kStages, 1);
    barriers_ready();
  }
  if (!walk.live() && threadIdx.x < kMaxGroup) {
    reinterpret_cast<float*>(shared + F::kMaxima)[threadIdx.x] = -INFINITY;
    reinterpret_cast<float*>(shared + F::kSums)[threadIdx.x] = 0.0f;
  }
  if (!walk.live()) {
    for (int e = threadIdx.x; e < p.group * L::kDim; e += kThreads)
      reinterpret_cast<float*>(shared + F::kValues)[e] = 0.0f;
  }
  __syncthreads();
  const bool producer = threadIdx.x / 32 == kWarps;
  if (!walk.live()) {
    wait_for_producer();
  } else if (producer) {
    produce<L>(p, walk, position, shared);
  } else {
    wait_for_producer();
    consume_few<L>(p, walk, position, shared);
  }
  __syncwarp();
  cluster_arrive();
  cluster_wait();
  if (!producer) merge_blocks<L>(p, walk, rank, blocks, shared_address(shared));
  __syncwarp();
  cluster_arrive();  // none ends while others read its part
  cluster_wait();
}

// Clusters of so many blocks that run at a time.
template <class L>
int clusters_at_once(int blocks) {
  const auto kernel = few_kernel<L>;
  check_launch(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kShared),
               "attention");
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = L::kShared;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(blocks), 1, 1};
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  check_launch(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config), "attention");
  return clusters;
}

template <class L>
int few_blocks_of(int64_t pairs) {
  static const int at_once[4] = {clusters_at_once<L>(1), clusters_at_once<L>(2), clusters_at_once<L>(4),
                                 clusters_at_once<L>(8)};
  int blocks = 0;
  for (int i = 0; i < 4; ++i)
    if (pairs <= at_once[i]) blocks = 1 << i;
  return blocks;
}

template <class L>
void launch_few_of(const DecodeAttentionParams& p, Stream stream) {
  const auto blocks = static_cast<unsigned>(p.few);
  const auto pairs = static_cast<unsigned>(p.attention.q.n * p.attention.kv_heads);
  const Grid grid{dim3(pairs * blocks), dim3(kThreads), L::kShared, blocks};
  launch("attention", few_kernel<L>, grid, stream, one_arguments(p), p.few);
}

}  // namespace

int few_blocks(const AttentionParams& p) {
  const int64_t pairs = p.q.n * p.kv_heads;
  if (p.k.type == DType::F8_E4M3) return few_blocks_of<OneLayout<128, 1, true>>(pairs);
  if (p.k.dim == 64) return few_blocks_of<OneLayout<64, 2, true>>(pairs);
  if (p.k.dim == kMaxDim) return few_blocks_of<OneLayout<kMaxDim, 2, true>>(pairs);
  return few_blocks_of<OneLayout<128, 2, true>>(pairs);
}

void launch_few(const DecodeAttentionParams& p, Stream stream) {
  if (p.attention.k.type == DType::F8_E4M3) return launch_few_of<OneLayout<128, 1, true>>(p, stream);
  if (p.attention.k.dim == 64) return launch_few_of<OneLayout<64, 2, true>>(p, stream);
  if (p.attention.k.dim == kMaxDim) return launch_few_of<OneLayout<kMaxDim, 2, true>>(p, stream);
  launch_few_of<OneLayout<128, 2, true>>(p, stream);
}

}  // namespace sluice::kernels::cuda

// Attention that takes every token for itself, made for steps that run one new token per sequence: cache in blocks of
// 16, 32 or 64 slots, head after head, in bf16 with heads of 64 or 128 elements or in fp8 with heads of 128, up to 8
// query heads per kv head; windows, softcap, sinks, alibi.
//
// A unit is 64 keys and values of one (token, kv head). The units of the step, in that order, are cut into equal
// shares, one per persistent block, so every multiprocessor reads the same number of bytes whatever the lengths are; where
// that comes out almost alike, heads are left whole. A producer warp keeps a ring of units full across the borders of
// heads and sequences, with plain copies of 2 KiB that lie in a row: boxes of a tensor map, in rows of 128 bytes, cost 8 %
// of the bandwidth. Four warps take 16 keys of a unit each: scores with mma m16n8k16 (keys are its rows, query heads its
// columns, those from `group` on zero), running base and sum, values with a second mma; they meet in shared memory at the
// end of a head. A head that several blocks share is merged by the last of them to finish, in the order of its keys.
// A large batch is held up by the card's power as much as by its memory, so every instruction counts.
//
// The cache of earlier steps may be read before the kernel in front has ended, since that one (which stores the new
// keys) lets this one start only after everything before it has ended; the unit with the new key waits. Reads keys and
// values once, from memory: 2 · 2 · Dim bytes per key and kv head (fp8: half of that; its elements become f16, which
// holds them all, on their way to an f16 mma). Copies of this kind alone come at 4.6 TB/s on an
// H200, the ceiling.
#include "kernels/cuda/attention_share.cuh"
#include "kernels/cuda/copy_engine.cuh"
#include "kernels/cuda/flash.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kMaxProcessors = 256;

// One part of a head that several blocks share: values [group, Dim], then maxima, then sums.
constexpr int kPartMaxima = kMaxGroup * 128, kPartSums = kPartMaxima + kMaxGroup;
constexpr int kPartFloats = kPartSums + kMaxGroup;

__device__ __forceinline__ void sync_warps() {
  asm volatile("bar.sync 1, %0;" ::"n"(kWarps * 32) : "memory");
}

// Fills the ring; all lanes of the producer warp take part, one lane per run of keys or values.
template <int Dim, int Bytes>
__device__ __forceinline__ void produce(const OneArguments& p, uint32_t shared, Walk walk,
                                        const int* positions) {
  using L = OneLayout<Dim, Bytes>;
  const int lane = threadIdx.x % 32;
  const uint32_t full = shared + L::kBarriers, empty = full + 8 * L::kStages;
  const uint32_t query_full = empty + 8 * L::kStages, query_empty = query_full + 8 * kQuerySlots;
  const uint64_t policy = read_once_policy();
  const int per_unit = kKeys / p.table.block_size, run = lane % L::kRuns;
  const int part = run * L::kRun / p.table.block_size;
  const OneCache cache = lane < L::kRuns ? p.keys : p.values;
  const uint8_t* const source = cache.data + run * L::kRun % p.table.block_size * L::kRowBytes;
  const uint32_t place = lane / L::kRuns * L::kMatrixBytes + run * L::kRunPitch;
  const uint32_t query_bytes = static_cast<uint32_t>(p.group * Dim * 2);
  bool waited = false;
  int issued = 0, pieces = 0, queries = 0;
  const bf16* pending[kQuerySlots] = {};
  const auto send_queries = [&] {
    for (; queries < pieces; ++queries) {
      const int slot = queries % kQuerySlots;
      if (queries >= kQuerySlots) barrier_wait(query_empty + 8 * slot, ((queries / kQuerySlots) - 1) & 1);
      if (lane == 0) {
        barrier_expect(query_full + 8 * slot, query_bytes);
        copy_bytes(shared + L::kQueries + slot * L::kQueryBytes, pending[slot], query_bytes,
                   query_full + 8 * slot);
      }
    }
  };
  const auto wait = [&] {
    if (waited) return;
    wait_for_producer();
    waited = true;
  };
  for (; walk.live(); walk.next()) {
    if (pieces - queries == kQuerySlots) {
      wait();
      send_queries();
    }
    pending[pieces % kQuerySlots] = p.q + walk.token * p.q_stride + int64_t{walk.head} * p.group * Dim;
    ++pieces;
    if (waited) send_queries();
    const int position = positions[walk.token], blocks = position / p.table.block_size;
    const int32_t* row = p.table.blocks + p.table.row_begin[p.table.sequence[walk.token]];
    const auto entry = [&](int unit) {
      const int index = unit * per_unit + part;
      return row[index < blocks ? index : blocks];
    };
    const int begin = first_key(p, position) / kKeys + walk.unit, end = begin + walk.count();
    int32_t block = lane < 2 * L::kRuns ? entry(begin) : 0;
    for (int unit = begin; unit < end; ++unit, ++issued) {
      if (!waited && (p.whole != 0 || issued == L::kStages || (unit + 1) * kKeys > position)) {
        wait();
        send_queries();
      }
      const int stage = issued % L::kStages;
      if (issued >= L::kStages) barrier_wait(empty + 8 * stage, ((issued / L::kStages) - 1) & 1);
      // Runs that begin behind the token are left out.
      const int keys = position + 1 - unit * kKeys,
                runs = keys < kKeys ? (keys + L::kRun - 1) / L::kRun : L::kRuns;
      if (lane == 0) barrier_expect(full + 8 * stage, 2 * runs * L::kRunBytes);
      __syncwarp();
      if (lane < 2 * L::kRuns && run < runs) {
        copy_bytes(shared + stage * L::kStageBytes + place,
                   source + block * cache.stride_block + walk.head * cache.stride_head, L::kRunBytes,
                   full + 8 * stage, policy);
        if (unit + 1 < end) block = entry(unit + 1);
      }
    }
  }
  wait();
  send_queries();
}

// A maximum, a sum and four values of a head, from some of its keys.
struct Part {
  float maximum, sum;
  float4 values;
};

// read(i) gives part i. The reads of eight parts are under way together.
template <int Together, class Read>
__device__ __forceinline__ Part merge(int parts, const Read& read) {
  Part result{-INFINITY, 0.0f, make_float4(0.0f, 0.0f, 0.0f, 0.0f)};
  for (int first = 0; first < parts; first += Together) {
    Part some[Together];
    float maximum = result.maximum;
#pragma unroll
    for (int i = 0; i < Together; ++i) {
      some[i] = first + i < parts ? read(first + i) : Part{-INFINITY, 0.0f, make_float4(0, 0, 0, 0)};
      maximum = fmaxf(maximum, some[i].maximum);
    }
    const auto add = [&](const Part& part) {
      const float factor = exp2f(part.maximum - maximum);
      result.sum += factor * part.sum;
      result.values.x += factor * part.values.x, result.values.y += factor * part.values.y;
      result.values.z += factor * part.values.z, result.values.w += factor * part.values.w;
    };
    const Part before = result;
    result = Part{maximum, 0.0f, make_float4(0, 0, 0, 0)};
    add(before);
#pragma unroll
    for (int i = 0; i < Together; ++i) add(some[i]);
  }
  return result;
}

// `sink`: one more score, with no value; -infinity where there is none.
__device__ __forceinline__ void store_result(bf16* out, const Part& part, float sink) {
  const float maximum = fmaxf(part.maximum, sink), factor = exp2f(part.maximum - maximum);
  const float inverse = factor / (part.sum * factor + exp2f(sink - maximum));
  *reinterpret_cast<uint2*>(out) = make_uint2(pack_pair(part.values.x * inverse, part.values.y * inverse),
                                              pack_pair(part.values.z * inverse, part.values.w * inverse));
}

// The warps' shares to the result, or to a part of it; the block that hands in the last part makes the result.
template <int Dim, int Bytes>
__device__ __forceinline__ void finish(const OneArguments& p, const Walk& walk, uint8_t* shared,
                                       int* last_one) {
  using L = OneLayout<Dim, Bytes>;
  const auto* values = reinterpret_cast<const float*>(shared + L::kValues);
  const auto* maxima = reinterpret_cast<const float*>(shared + L::kMaxima);
  const auto* sums = reinterpret_cast<const float*>(shared + L::kSums);
  const bool complete = walk.count() == walk.units;
  const auto sink_of = [&](int r) {
    return p.sinks != nullptr ? p.sinks[walk.head * p.group + r] * kLog2E : -INFINITY;
  };
  float* mine = p.parts + (int64_t{blockIdx.x} * 2 + (walk.unit == 0 ? 1 : 0)) * kPartFloats;
  bf16* out = p.out + walk.token * p.out_stride_n + int64_t{walk.head} * p.group * p.out_stride_h;
  for (int e = threadIdx.x * 4; e < p.group * Dim; e += kWarps * 32 * 4) {
    const int r = e / Dim, d = e % Dim;
    const Part part = merge<kWarps>(kWarps, [&](int w) {
      const int row = w * kMaxGroup + r;
      return Part{maxima[row], sums[row], *reinterpret_cast<const float4*>(values + row * L::kPitch + d)};
    });
    if (complete) {
      store_result(out + r * p.out_stride_h + d, part, sink_of(r));
      continue;
    }
    __stcg(reinterpret_cast<float4*>(mine + e), part.values);
    if (d == 0) __stcg(mine + kPartMaxima + r, part.maximum), __stcg(mine + kPartSums + r, part.sum);
  }
  if (complete) return;
  const int64_t all = int64_t{walk.first_unit[p.tokens]} * p.kv_heads, begin = walk.at - walk.unit;
  const auto block_of = [&](int64_t unit) { return ((unit + 1) * blocks_for(all) - 1) / all; };
  const int64_t first = block_of(begin), parts = block_of(begin + walk.units - 1) - first + 1;
  __threadfence();
  sync_warps();
  int32_t* arrivals = p.arrivals + walk.token * p.kv_heads + walk.head;
  if (threadIdx.x == 0) *last_one = atomicAdd(arrivals, 1) == parts - 1 ? 1 : 0;
  sync_warps();
  if (*last_one == 0) return;
  __threadfence();
  for (int e = threadIdx.x * 4; e < p.group * Dim; e += kWarps * 32 * 4) {
    const int r = e / Dim, d = e % Dim;
    const Part whole = merge<8>(static_cast<int>(parts), [&](int i) {
      const float* part = p.parts + ((first + i) * 2 + (i == 0 ? 1 : 0)) * kPartFloats;
      return Part{__ldcg(part + kPartMaxima + r), __ldcg(part + kPartSums + r),
                  __ldcg(reinterpret_cast<const float4*>(part + e))};
    });
    store_result(out + r * p.out_stride_h + d, whole, sink_of(r));
  }
  if (threadIdx.x == 0) *arrivals = 0;
}

template <int Dim, int Bytes>
__global__ void __launch_bounds__(kThreads, 1) one_kernel(const __grid_constant__ OneArguments p) {
  using L = OneLayout<Dim, Bytes>;
  extern __shared__ __align__(128) uint8_t shared[];
  const uint32_t base = shared_address(shared), full = base + L::kBarriers, empty = full + 8 * L::kStages;
  const uint32_t query_full = empty + 8 * L::kStages, query_empty = query_full + 8 * kQuerySlots;
  int* positions = reinterpret_cast<int*>(shared + L::kPositions);
  int* first_unit = reinterpret_cast<int*>(shared + L::kFirstUnit);
  int* scratch = first_unit + kMaxTokens + 1;
  allow_dependents();
  if (threadIdx.x == 0) {
    for (int s = 0; s < L::kStages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, kWarps);
    }
    for (int s = 0; s < kQuerySlots; ++s) {
      barrier_init(query_full + 8 * s, 1);
      barrier_init(query_empty + 8 * s, kWarps);
    }
    barriers_ready();
    scratch[9] = 0;
  }
  count_units(p, positions, first_unit, scratch);
  const bool whole = leave_whole(p, first_unit, scratch + 9);
  const int64_t begin = start_of(p, first_unit, whole, blockIdx.x),
                border = start_of(p, first_unit, whole, blockIdx.x + 1);
  if (begin >= border) return wait_for_producer();
  Walk walk(first_unit, p.tokens, p.kv_heads, begin, border);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == kWarps) return produce<Dim, Bytes>(p, base, walk, positions);

  wait_for_producer();
  OneShare<Dim, Bytes> share;
  const bool scores_plain = p.softcap == 0.0f && p.alibi == nullptr;
  int stage = 0, before = -1;
  uint32_t parity = 0;
  for (int piece = 0; walk.live(); walk.next(), ++piece) {
    const int slot = piece % kQuerySlots;
    barrier_wait(query_full + 8 * slot, (piece / kQuerySlots) & 1);
    share.start(p, walk.head, shared + L::kQueries + slot * L::kQueryBytes, lane);
    const int position = positions[walk.token], from = first_key(p, position), skipped = from / kKeys;
    const int end = skipped + walk.unit + walk.count();
    for (int unit = skipped + walk.unit; unit < end; ++unit) {
      barrier_wait(full + 8 * stage, parity);
      // A stage is given back one stage late: by then all reads of it have ended.
      __syncwarp();
      if (lane == 0 && before >= 0) barrier_arrive(empty + 8 * before);
      const int first = from - unit * kKeys, limit = position + 1 - unit * kKeys;
      const uint32_t at = base + stage * L::kStageBytes;
      if (scores_plain && first <= 0 && limit >= kKeys) {
        share.template add<Keys::Plain>(p, at, warp, first, limit, lane);
      } else {
        share.template add<Keys::Any>(p, at, warp, first, limit, lane);
      }
      before = stage;
      if (++stage == L::kStages) stage = 0, parity ^= 1u;
    }
    share.hand_in(reinterpret_cast<float*>(shared + L::kValues),
                  reinterpret_cast<float*>(shared + L::kMaxima), reinterpret_cast<float*>(shared + L::kSums),
                  warp, p.group, lane);
    sync_warps();
    if (lane == 0) barrier_arrive(query_empty + 8 * slot);
    finish<Dim, Bytes>(p, walk, shared, scratch + 8);
    sync_warps();
  }
}

template <int Dim, int Bytes>
void launch_dim(const OneParams& p, Stream stream) {
  using L = OneLayout<Dim, Bytes>;
  static const int processors = multiprocessors();
  static const cudaError_t attribute =
      cudaFuncSetAttribute(one_kernel<Dim, Bytes>, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kShared);
  check_launch(attribute, "attention");
  const AttentionParams& a = p.attention;
  const auto cache_of = [](const CacheView& cache) {
    return OneCache{static_cast<const uint8_t*>(cache.data), cache.stride_block * Bytes,
                    cache.stride_head * Bytes};
  };
  OneArguments arguments{};
  arguments.q = static_cast<const bf16*>(a.q.data);
  arguments.out = static_cast<bf16*>(a.out.data);
  arguments.parts = static_cast<float*>(p.workspace);
  arguments.arrivals =
      reinterpret_cast<int32_t*>(arguments.parts + int64_t{kMaxProcessors} * 2 * kPartFloats);
  arguments.keys = cache_of(a.k);
  arguments.values = cache_of(a.v);
  arguments.table = a.table;
  arguments.q_stride = a.q.stride_n;
  arguments.out_stride_n = a.out.stride_n;
  arguments.out_stride_h = a.out.stride_h;
  arguments.sinks = a.sinks;
  arguments.alibi = a.alibi;
  arguments.tokens = static_cast<int>(a.q.n);
  arguments.kv_heads = static_cast<int>(a.kv_heads);
  arguments.group = static_cast<int>(a.q.heads / a.kv_heads);
  arguments.window = a.window;
  arguments.scale = a.scale;
  arguments.scale_of_powers = a.scale * kLog2E;
  arguments.softcap = a.softcap;
  arguments.whole = p.whole;
  const int blocks = processors < kMaxProcessors ? processors : kMaxProcessors;
  const Grid grid{dim3(static_cast<unsigned>(blocks)), dim3(kThreads), L::kShared};
  launch("attention", one_kernel<Dim, Bytes>, grid, stream, arguments);
}

}  // namespace

size_t one_workspace_bytes() {
  return (size_t{kMaxProcessors} * 2 * kPartFloats + size_t{kMaxTokens} * kMaxKvHeads) * 4;
}

bool one_fits(const AttentionParams& p) {
  const int64_t group = p.kv_heads > 0 ? p.q.heads / p.kv_heads : 0;
  const auto cache_fits = [&](const CacheView& c) {
    const int64_t piece = c.type == DType::BF16 ? 8 : 16;  // elements of 16 bytes
    return (c.type == DType::BF16 || (c.type == DType::F8_E4M3 && c.dim == 128)) && aligned16(c.data) &&
           c.stride_slot == c.dim && c.stride_head % piece == 0 && c.stride_block % piece == 0;
  };
  const bool size = p.k.dim == p.v.dim && (p.k.dim == 64 || p.k.dim == 128) && group <= kMaxGroup &&
                    p.kv_heads <= kMaxKvHeads && p.q.n <= kMaxTokens && p.q.n > 0;
  const bool blocks = p.table.block_size == 16 || p.table.block_size == 32 || p.table.block_size == 64;
  const bool results = p.out.stride_n % 4 == 0 && p.out.stride_h % 4 == 0 && aligned16(p.out.data);
  const bool queries = aligned16(p.q.data) && p.q.stride_h == p.k.dim && p.q.stride_n % 8 == 0;
  return size && blocks && queries && results && cache_fits(p.k) && cache_fits(p.v);
}

void launch_one(const OneParams& p, Stream stream) {
  if (p.attention.k.type == DType::F8_E4M3) return launch_dim<128, 1>(p, stream);
  if (p.attention.k.dim == 64) return launch_dim<64, 2>(p, stream);
  launch_dim<128, 2>(p, stream);
}

}  // namespace sluice::kernels::cuda

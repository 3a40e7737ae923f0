// Attention that takes every token for itself, made for steps that run one new token per sequence: cache in blocks of
// 16, 32 or 64 slots, head after head, in bf16 with heads of 64, 128 or 256 elements or in fp8 with heads of 128, up to 8
// query heads per kv head; windows, softcap, sinks, alibi.
//
// A unit is 64 keys and values of one (token, kv head). The units of the step, in that order, are cut into ranges: one of
// equal length for each persistent block, and short ones that go to the blocks that are done first; where heads of equal
// length make it come out even, heads are left whole. A producer warp keeps a ring of units full across the borders of
// heads, sequences and ranges, with plain copies of 2 KiB that lie in a row: boxes of a tensor map, in rows of 128 bytes,
// cost 8 % of the bandwidth. Four warps take 16 keys of a unit each: scores with mma m16n8k16 (keys are its rows, query
// heads its columns, those from `group` on zero), running base and sum, values with a second mma; they meet in shared
// memory at the end of a head. A head that lies in several ranges is merged by the block that ends the last of them, in
// the order of its keys: results do not depend on who had which range.
//
// Reads keys and values once, from memory: 2 · 2 · Dim bytes per key and kv head (fp8: half of that; its elements become
// f16, which holds them all, on their way to an f16 mma). Reading is the limit: with many long sequences the kernel takes
// about as long without its MMAs.
#include <algorithm>

#include "kernels/cuda/attention/decode_attention_consumer.cuh"
#include "kernels/cuda/attention/decode_attention_producer.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kMaxProcessors = 256;
constexpr size_t kMaxRanges = kMaxProcessors + kMaxShort;

// One part of a head that several blocks share: values [group, Dim], then maxima, then sums.
constexpr int kPartMaxima = kMaxGroup * kMaxDim, kPartSums = kPartMaxima + kMaxGroup;
constexpr int kPartFloats = kPartSums + kMaxGroup;

// The warps' shares to the result, or to a part of it; the block that hands in the last part makes the result.
template <int Dim, int Bytes>
__device__ __forceinline__ void finish(const OneArguments& p, const Ranges& ranges, const Piece& piece,
                                       uint8_t* shared) {
  using L = OneLayout<Dim, Bytes>;
  int* last_one = reinterpret_cast<int*>(shared + L::kLastOne);
  const bool complete = piece.count == piece.units;
  const auto sink_of = [&](int r) {
    return p.sinks != nullptr ? p.sinks[piece.head * p.group + r] * kLog2E : -INFINITY;
  };
  float* mine = p.parts + (int64_t{piece.range} * 2 + (piece.unit == 0 ? 1 : 0)) * kPartFloats;
  bf16* out = p.out + piece.token * p.out_stride_n + int64_t{piece.head} * p.group * p.out_stride_h;
  for (int e = threadIdx.x * 4; e < p.group * Dim; e += kWarps * 32 * 4) {
    const int r = e / Dim, d = e % Dim;
    const Part part = merge_warps<L>(shared, r, d);
    if (complete) {
      store_result(out + r * p.out_stride_h + d, part, sink_of(r));
      continue;
    }
    __stcg(reinterpret_cast<float4*>(mine + e), part.values);
    if (d == 0) __stcg(mine + kPartMaxima + r, part.maximum), __stcg(mine + kPartSums + r, part.sum);
  }
  if (complete) return;
  const int first = ranges.range_of(piece.begin);
  const int parts = ranges.range_of(piece.begin + piece.units - 1) - first + 1;
  __threadfence();
  sync_warps();
  int32_t* arrivals = p.arrivals + piece.token * p.kv_heads + piece.head;
  if (threadIdx.x == 0) *last_one = atomicAdd(arrivals, 1) == parts - 1 ? 1 : 0;
  sync_warps();
  if (*last_one == 0) return;
  __threadfence();
  for (int e = threadIdx.x * 4; e < p.group * Dim; e += kWarps * 32 * 4) {
    const int r = e / Dim, d = e % Dim;
    const Part whole = merge<8>(parts, [&](int i) {
      const float* part = p.parts + int64_t{(first + i) * 2 + (i == 0 ? 1 : 0)} * kPartFloats;
      return Part{__ldcg(part + kPartMaxima + r), __ldcg(part + kPartSums + r),
                  __ldcg(reinterpret_cast<const float4*>(part + e))};
    });
    store_result(out + r * p.out_stride_h + d, whole, sink_of(r));
  }
  if (threadIdx.x == 0) *arrivals = 0;
}

// The other warps: each has 16 keys of every unit.
template <int Dim, int Bytes>
__device__ __forceinline__ void consume(const OneArguments& p, const Ranges& ranges, uint8_t* shared) {
  using L = OneLayout<Dim, Bytes>;
  const uint32_t base = shared_address(shared), full = base + L::kBarriers, empty = full + 8 * L::kStages;
  const uint32_t piece_full = empty + 8 * L::kStages, piece_empty = piece_full + 8 * kPieceSlots;
  const Piece* pieces = reinterpret_cast<const Piece*>(shared + L::kPieces);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  OneShare<L> share;
  StageRing ring{base, full, empty};
  for (int turn = 0;; ++turn) {
    const int slot = turn % kPieceSlots;
    barrier_wait(piece_full + 8 * slot, (turn / kPieceSlots) & 1);
    const Piece piece = pieces[slot];
    if (piece.count == 0) return;
    share.start(p, piece.head, shared + L::kQueries + slot * L::kQueryBytes, lane);
    consume_units(share, p, ring, {piece.position, piece.unit, piece.count});
    share.merge_partial(reinterpret_cast<float*>(shared + L::kValues),
                        reinterpret_cast<float*>(shared + L::kMaxima),
                        reinterpret_cast<float*>(shared + L::kSums), warp, p.group, lane);
    sync_warps();
    // Every lane for itself: racecheck takes the reads of those that arrive as done, and no others.
    barrier_arrive(piece_empty + 8 * slot);
    finish<Dim, Bytes>(p, ranges, piece, shared);
    sync_warps();
  }
}

template <int Dim, int Bytes>
__global__ void __launch_bounds__(kThreads, 1) one_kernel(const __grid_constant__ OneArguments p) {
  using L = OneLayout<Dim, Bytes>;
  require_bulk_copies();
  extern __shared__ __align__(128) uint8_t shared[];
  allow_dependents();
  // Plan and table are copies from the host; a kernel starts after the copies in front of it have ended.
  const int32_t* const starts = p.plan + kRangesInts;
  const auto ranges = read_plan<Ranges>(p.plan);
  const auto start = read_plan<DecodeAttentionStart>(starts + blockIdx.x * kStartInts);
  if (threadIdx.x == 0) {
    const uint32_t full = shared_address(shared) + L::kBarriers, empty = full + 8 * L::kStages;
    const uint32_t piece_full = empty + 8 * L::kStages, piece_empty = piece_full + 8 * kPieceSlots;
    for (int s = 0; s < L::kStages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, kWarps);
    }
    for (int s = 0; s < kPieceSlots; ++s) {
      barrier_init(piece_full + 8 * s, 1);
      barrier_init(piece_empty + 8 * s, kWarps * 32);
    }
    barriers_ready();
  }
  __syncthreads();
  if (static_cast<int>(blockIdx.x) >= ranges.own.parts) return wait_for_producer();
  if (threadIdx.x / 32 == kWarps) return OneProducer<L>(p, ranges, shared).run(start);
  int* positions = reinterpret_cast<int*>(shared + L::kPositions);
  int* first_unit = reinterpret_cast<int*>(shared + L::kFirstUnit);
  const int32_t* const units = starts + gridDim.x * kStartInts;
  for (int token = threadIdx.x; token < p.tokens; token += kWarps * 32) {
    positions[token] = p.table.positions[token];
    first_unit[token + 1] = units[token + 1];
  }
  if (threadIdx.x == 0) first_unit[0] = 0;
  signal_arrays_loaded();
  wait_for_producer();
  consume<Dim, Bytes>(p, ranges, shared);
}

template <int Dim, int Bytes>
void launch_dim(const DecodeAttentionParams& p, Stream stream) {
  using L = OneLayout<Dim, Bytes>;
  static const cudaError_t attribute =
      cudaFuncSetAttribute(one_kernel<Dim, Bytes>, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kShared);
  check_launch(attribute, "attention");
  OneArguments arguments = one_arguments(p);
  arguments.parts = static_cast<float*>(p.workspace);
  arguments.tickets = reinterpret_cast<int32_t*>(arguments.parts + kMaxRanges * 2 * kPartFloats);
  arguments.arrivals = arguments.tickets + 2;
  const Grid grid{dim3(static_cast<unsigned>(one_blocks())), dim3(kThreads), L::kShared};
  launch("attention", one_kernel<Dim, Bytes>, grid, stream, arguments);
}

}  // namespace

int one_blocks() {
  static const int processors = multiprocessors();
  return processors < kMaxProcessors ? processors : kMaxProcessors;
}

size_t decode_workspace_bytes() {
  return (kMaxRanges * 2 * kPartFloats + 2 + size_t{kMaxTokens} * kMaxKvHeads) * 4;
}

bool one_fits(const AttentionParams& p) {
  constexpr int kMostShared = std::max({OneLayout<64, 2>::kShared, OneLayout<128, 2>::kShared,
                                        OneLayout<128, 1>::kShared, OneLayout<256, 2>::kShared});
  if (!features().bulk_copies || features().shared_bytes < kMostShared) return false;
  const int64_t group = p.kv_heads > 0 ? p.q.heads / p.kv_heads : 0;
  const auto cache_fits = [&](const CacheView& c) {
    const int64_t piece = c.type == DType::BF16 ? 8 : 16;  // elements of 16 bytes
    return (c.type == DType::BF16 || (c.type == DType::F8_E4M3 && c.dim == 128)) && aligned16(c.data) &&
           c.stride_slot == c.dim && c.stride_head % piece == 0 && c.stride_block % piece == 0;
  };
  const bool alike = p.k.stride_block == p.v.stride_block && p.k.stride_head == p.v.stride_head;
  const bool size = p.k.dim == p.v.dim && (p.k.dim == 64 || p.k.dim == 128 || p.k.dim == kMaxDim) &&
                    group <= kMaxGroup && p.kv_heads <= kMaxKvHeads && p.q.n <= kMaxTokens && p.q.n > 0;
  const bool blocks = p.table.block_size == 16 || p.table.block_size == 32 || p.table.block_size == 64;
  const bool results = p.out.stride_n % 4 == 0 && p.out.stride_h % 4 == 0 && aligned16(p.out.data);
  const bool queries = aligned16(p.q.data) && p.q.stride_h == p.k.dim && p.q.stride_n % 8 == 0;
  return alike && size && blocks && queries && results && cache_fits(p.k) && cache_fits(p.v);
}

void launch_one(const DecodeAttentionParams& p, Stream stream) {
  if (p.attention.k.type == DType::F8_E4M3) return launch_dim<128, 1>(p, stream);
  if (p.attention.k.dim == 64) return launch_dim<64, 2>(p, stream);
  if (p.attention.k.dim == kMaxDim) return launch_dim<kMaxDim, 2>(p, stream);
  launch_dim<128, 2>(p, stream);
}

}  // namespace sluice::kernels::cuda

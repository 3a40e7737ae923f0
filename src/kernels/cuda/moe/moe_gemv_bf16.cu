// moe_gemv.cu's work for gated bf16 matrices: as many blocks as run at once share the rows.
//
// up: a block makes a run of a token's active numbers. Its warps have slices of 256 columns, two halves of the rows: a lane keeps
// its part of the token in registers and has eight pieces of weights on their way. down: a block makes eight rows, whose pieces
// of 256 columns of all slots are dealt out evenly; the first eight of each warp are on their way before the kernel in front
// has ended.
// Bytes: the matrices of all pairs, once for each pair. Their lines are the first to leave the L2. Of experts that every token
// uses gate and up come to the L2 while the choice of the others is made.
#include <algorithm>

#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/moe/moe_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kSlices = 8, kHalves = 2, kWarps = kSlices * kHalves, kThreads = kWarps * 32;
constexpr int kBlocksAtOnce = 2;        // on a multiprocessor
constexpr int kAhead = 8;               // pieces of a lane on their way
constexpr int kPiece = 256;             // columns that a warp loads at a time
constexpr int kMostPairs = 256;         // active numbers of a block
constexpr int kMostChunks = 2;          // pieces of a row to a warp
constexpr int kDownRows = 8;            // of a block
constexpr int kMostPieces = 256;        // of a row of down, over all slots
constexpr int kMostActive = 64 * 1024;  // bytes of a token's active numbers
constexpr int kMostExperts = 320;       // whose addresses are brought before the choice
constexpr int kMostSlots = 32;

// Read once: the first to leave the L2.
__device__ __forceinline__ uint4 load_passing(const uint8_t* p, uint64_t policy) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3},[%4],%5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p), "l"(policy));
  return v;
}
__device__ __forceinline__ uint64_t passing_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// The sums of N values over a warp: lane l has that of value l / (32 / N).
template <int N>
__device__ __forceinline__ float spread_sum(float (&v)[N]) {
  const int lane = threadIdx.x % 32;
  int distance = 16;
#pragma unroll
  for (int left = N / 2; left > 0; left /= 2, distance /= 2) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < left; ++i) {
      const float sent = upper ? v[i] : v[i + left], kept = upper ? v[i + left] : v[i];
      v[i] = kept + __shfl_xor_sync(0xffffffffu, sent, distance);
    }
  }
  float sum = v[0];
  for (; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  return sum;
}

__device__ __forceinline__ float dot8(uint4 weights, const float (&x)[8]) {
  float w[8], sum = 0.0f;
  unpack8(weights, w);
#pragma unroll
  for (int j = 0; j < 8; ++j) sum += w[j] * x[j];
  return sum;
}

// What a token's slots have.
struct Slots {
  int expert[kMostSlots];
  float weight[kMostSlots];
};

// By the first warp, behind the kernel that chose.
__device__ __forceinline__ void load_slots(const FewExpertsParams& p, int token, Slots& slots) {
  if (static_cast<int>(threadIdx.x) >= p.used) return;
  slots.expert[threadIdx.x] = __ldcg(p.ids + token * p.ids_stride + threadIdx.x);
  slots.weight[threadIdx.x] = __ldcg(p.weights + token * p.weights_stride + threadIdx.x);
}

// Each block asks for its part.
__device__ __forceinline__ void prefetch_always(const FewExpertsParams& p) {
  constexpr int kLine = 128;
  const int64_t bytes = p.up.rows * p.up.row_bytes;
  for (int expert = p.experts - p.always; expert < p.experts; ++expert) {
    const auto* const matrix = static_cast<const uint8_t*>(p.up_matrices[expert]);
    for (int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kLine; at < bytes;
         at += int64_t{gridDim.x} * kThreads * kLine)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(matrix + at));
  }
}

struct UpMemory {
  Slots slots;
  const uint8_t* matrices[kMostExperts];
  const uint8_t* rows[2 * kMostPairs];
  float parts[kSlices][2 * kMostPairs];
};

// grid: (runs of a token's active numbers, tokens)
template <int Chunks>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce) few_up_bf16_kernel(const FewExpertsParams p) {
  __shared__ UpMemory s;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int slice = warp % kSlices, half = warp / kSlices, token = static_cast<int>(blockIdx.y);
  const int inner = static_cast<int>(p.down.cols), cols = static_cast<int>(p.up.cols);
  const int all = p.used * inner,
            each = (all + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  const int first = static_cast<int>(blockIdx.x) * each, pairs = min(each, all - first);
  const int halves = (pairs + 1) / 2, own_first = half * halves;
  const int count = 2 * max(0, min(halves, pairs - own_first)) * Chunks;  // of the warp
  const uint64_t policy = passing_policy();
  for (int i = thread; i < min(p.experts, kMostExperts); i += kThreads)
    s.matrices[i] = static_cast<const uint8_t*>(p.up_matrices[i]);
  if (token == 0) prefetch_always(p);

  const auto column = [&](int chunk) { return (chunk * kSlices + slice) * kPiece + lane * 8; };
  uint4 held[kAhead];
  const auto load = [&](int unit) {
    const int at = column(unit % Chunks);
    return unit < count && at < cols ? load_passing(s.rows[2 * own_first + unit / Chunks] + 2 * at, policy)
                                     : make_uint4(0, 0, 0, 0);
  };
  wait_for_producer();
  allow_dependents();  // not before: the kernel behind reads the choice before this one has ended
  float x[Chunks][8];
#pragma unroll
  for (int c = 0; c < Chunks; ++c) {
    uint4 piece = make_uint4(0, 0, 0, 0);
    if (column(c) < cols)
      piece = load_activation(static_cast<const bf16*>(p.x.data) + token * p.x.stride_n + column(c));
    unpack8(piece, x[c]);
  }
  load_slots(p, token, s.slots);
  __syncthreads();
  for (int i = thread; i < pairs; i += kThreads) {
    const int slot = (first + i) / inner, row = first + i - slot * inner, expert = s.slots.expert[slot];
    const uint8_t* matrix =
        expert < kMostExperts ? s.matrices[expert] : static_cast<const uint8_t*>(p.up_matrices[expert]);
    s.rows[2 * i] = matrix + row * p.up.row_bytes;
    s.rows[2 * i + 1] = matrix + (inner + row) * p.up.row_bytes;
  }
  __syncthreads();
#pragma unroll
  for (int u = 0; u < kAhead; ++u) held[u] = load(u);
  constexpr int kRows = kAhead / Chunks;
  for (int base = 0; base < count; base += kAhead) {
    float partial[kRows] = {};
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      partial[u / Chunks] += dot8(held[u], x[u % Chunks]);
      held[u] = load(base + kAhead + u);
    }
    const float sum = spread_sum(partial);
    const int row = base / Chunks + lane / (32 / kRows);
    if (lane % (32 / kRows) == 0 && row * Chunks < count) s.parts[slice][2 * own_first + row] = sum;
  }
  __syncthreads();
  for (int i = thread; i < pairs; i += kThreads) {
    float sums[2] = {};
#pragma unroll
    for (int part = 0; part < kSlices; ++part)
      sums[0] += s.parts[part][2 * i], sums[1] += s.parts[part][2 * i + 1];
    static_cast<bf16*>(p.active)[int64_t{token} * all + first + i] =
        __float2bfloat16(gate(sums[0], sums[1], p.activation, p.limit));
  }
}

struct DownMemory {
  Slots slots;
  const uint8_t* matrices[kMostExperts];
  const uint8_t* pieces[kMostPieces];                   // in the first of the block's rows
  int16_t column[kMostPieces], start[kMostPieces + 1];  // start: in the active numbers, in eights
  float parts[kMostPieces * kDownRows];
};

// grid: (eights of rows, tokens)
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce) few_down_bf16_kernel(const FewExpertsParams p) {
  extern __shared__ uint4 active[];
  __shared__ DownMemory s;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int token = static_cast<int>(blockIdx.y), inner = static_cast<int>(p.down.cols);
  const int64_t first = int64_t{blockIdx.x} * kDownRows;
  const int to_slot = (inner + kPiece - 1) / kPiece, pieces = p.used * to_slot, units = pieces * kDownRows;
  const int from = warp * units / kWarps, count = (warp + 1) * units / kWarps - from;
  const uint64_t policy = passing_policy();
  for (int i = thread; i < min(p.experts, kMostExperts); i += kThreads)
    s.matrices[i] = static_cast<const uint8_t*>(p.down_matrices[i]);
  load_slots(p, token, s.slots);
  __syncthreads();
  for (int i = thread; i < pieces; i += kThreads) {
    const int slot = i / to_slot, column = (i - slot * to_slot) * kPiece, expert = s.slots.expert[slot];
    const uint8_t* matrix =
        expert < kMostExperts ? s.matrices[expert] : static_cast<const uint8_t*>(p.down_matrices[expert]);
    s.column[i] = static_cast<int16_t>(column),
    s.start[i] = static_cast<int16_t>((slot * inner + column) / 8);
    s.pieces[i] = matrix + first * p.down.row_bytes + 2 * column;
  }
  if (thread == 0) s.start[pieces] = 0;
  __syncthreads();
  const auto row_bytes = static_cast<uint32_t>(p.down.row_bytes), own = static_cast<uint32_t>(lane) * 16;
  const auto address = [&](int unit) {
    const auto at = static_cast<uint32_t>(from + unit);
    return s.pieces[at / kDownRows] + (at % kDownRows * row_bytes + own);
  };
  const auto there = [&](int unit) {
    return unit < count && s.column[(from + unit) / kDownRows] + lane * 8 < inner;
  };
  const auto load = [&](int unit) {
    return there(unit) ? load_passing(address(unit), policy) : make_uint4(0, 0, 0, 0);
  };
  uint4 held[kAhead];
#pragma unroll
  for (int u = 0; u < kAhead; ++u) held[u] = load(u);
  for (int u = kAhead; u < count; ++u)
    if (lane % 8 == 0 && there(u)) asm volatile("prefetch.global.L2 [%0];" ::"l"(address(u)));
  allow_dependents();
  wait_for_producer();
  bf16* const out = static_cast<bf16*>(p.out.data) + token * p.out.stride_n + first + warp;
  const bool stores = warp < kDownRows && lane == 0;
  const float before = stores && p.added != 0 ? widen(*out) : 0.0f;
  const bf16* const made = static_cast<const bf16*>(p.active) + int64_t{token} * p.used * inner;
  const int eights = p.used * inner / 8;
  for (int i = thread; i < eights; i += kThreads) active[i] = load_activation(made + i * 8);
  if (warp == 0) active[eights + lane] = make_uint4(0, 0, 0, 0);  // behind the last slot's last piece
  __syncthreads();
  for (int base = 0; base < count; base += kAhead) {
    float partial[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      float x[8];
      unpack8(active[s.start[min(from + base + u, units) / kDownRows] + lane], x);
      partial[u] = dot8(held[u], x);
      held[u] = load(base + kAhead + u);
    }
    const float sum = spread_sum(partial);
    const int unit = base + lane / (32 / kAhead);
    if (lane % (32 / kAhead) == 0 && unit < count) s.parts[from + unit] = sum;
  }
  __syncthreads();
  if (warp >= kDownRows) return;
  float sum = 0.0f;
  for (int piece = lane; piece < pieces; piece += 32)
    sum += s.slots.weight[piece / to_slot] * s.parts[piece * kDownRows + warp];
  sum = warp_sum(sum);
  if (stores) *out = __float2bfloat16(before + sum);
}

int64_t chunks_of(const FewExpertsParams& p) {
  return ceil_div(p.up.cols, kSlices * kPiece);
}

}  // namespace

bool few_bf16_fits(const FewExpertsParams& p) {
  const bool plain = p.x.type == DType::BF16 && p.up.type == DType::BF16 && p.down.type == DType::BF16;
  const bool aligned =
      aligned_tokens(p.x) && p.up.row_bytes % 16 == 0 && p.down.row_bytes % 16 == 0 && p.down.cols % 8 == 0;
  const int64_t pieces = p.used * ceil_div(p.down.cols, kPiece);
  return plain && aligned && p.gated != 0 && p.weigh_inputs == 0 && p.up_biases == nullptr &&
         p.down_biases == nullptr && p.down.rows % kDownRows == 0 && chunks_of(p) <= kMostChunks &&
         pieces <= kMostPieces && p.used <= kMostSlots &&
         (p.used * p.down.cols + kPiece) * 2 <= kMostActive && p.down.cols < 32768;
}

void launch_few_up_bf16(const FewExpertsParams& p, Stream stream) {
  static const int processors = multiprocessors();
  const int64_t at_once = std::max<int64_t>(1, int64_t{processors} * kBlocksAtOnce / p.x.n);
  const int64_t pairs = p.used * p.down.cols, each = std::min<int64_t>(kMostPairs, ceil_div(pairs, at_once));
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(pairs, each)), static_cast<unsigned>(p.x.n)),
                  dim3(kThreads)};
  launch("few experts, up", chunks_of(p) == 1 ? few_up_bf16_kernel<1> : few_up_bf16_kernel<2>, grid, stream,
         p);
}

void launch_few_down_bf16(const FewExpertsParams& p, Stream stream) {
  const auto shared = static_cast<size_t>((p.used * p.down.cols + kPiece) * 2);
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(p.down.rows, kDownRows)), static_cast<unsigned>(p.x.n)),
                  dim3(kThreads), shared};
  check_launch(
      cudaFuncSetAttribute(few_down_bf16_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostActive),
      "few experts, down");
  launch("few experts, down", few_down_bf16_kernel, grid, stream, p);
}

}  // namespace sluice::kernels::cuda

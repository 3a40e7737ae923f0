// All layers of a plain dense decoder in one launch, for one to eight tokens of as many sequences.
//
// One block on every multiprocessor. Weights do not depend on what is computed: one thread of a block sends its rows of all
// matrices of all layers, and the keys and values of its part of the context, into a ring of shared memory (cp.async.bulk,
// 2 KB each), as far ahead as that has room. Eight warps of consumers walk through the layers: queries, keys and values;
// attention; the matrix behind it; gate and up; down. Tokens are the padded operand of mma.m16n8k16, eight rows of a matrix
// the other; where rows leave registers for it (Rows), sixteen rows of a matrix, with the tokens as the padded operand. What a
// stage makes, a few KB, goes to all blocks by the L2, and every word says by itself when it is there (stack_ring.cuh): there
// is no barrier between blocks. The launch is cooperative, so all blocks run at a time. Blocks in pairs are clusters.
//
// Bytes moved: all weights and the context once.
#include <algorithm>

#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/stack/stack_attention.cuh"
#include "kernels/cuda/stack/stack_gemm.cuh"
#include "kernels/cuda/stack/stack_producer.cuh"

namespace sluice::kernels::cuda {
namespace stack {

// Sets of the workspace: a layer uses one. Why no word is lost, or taken for one of another layer:
// - A block erases its share of the set of layer l - 1 once it has made gate and up of layer l, of all words of `middle`. Those
//   are made of all of `attended`, that of all of `qkv`, of which every block has a share, made after its warps met behind
//   their reading of `end` of l - 1. What was handed over before has been read by who made those: nobody reads the set again,
//   and no store to it is on its way.
// - It is in use again in layer l + 2, where a block is when it has read a word of `end` of l + 1: made of `inner` of l + 1 of
//   all blocks, each of which waited for the fence behind its erasing before it handed that over. So void has come to the L2
//   before the word that lets anyone near the set, and looks go to the L2 (strong loads have no use for an L1) after the word
//   they depend on: nothing is read or written ahead of that.
// - Between launches that is so without a wait: the sets of the first two layers were erased by the launch in front, which has
//   ended, or the one before that; that of its last layer is erased in the first layer of this one.
// The number of tokens may change from launch to launch, since all of a set is erased.
constexpr int kSets = 3;

__device__ __forceinline__ uint32_t next_turn(uint32_t turn) {
  return turn == kSets - 1 ? 0 : turn + 1;
}

// One warp of each block erases its share, beside the consumers: it has to wait until that is seen everywhere.
__device__ __forceinline__ void erase_sets(const StackParams& p, uint32_t turn, uint32_t barriers) {
  const uint32_t pieces = static_cast<uint32_t>(p.layout.words) / 4, first = blockIdx.x * pieces / gridDim.x,
                 last = (blockIdx.x + 1) * pieces / gridDim.x, lane = threadIdx.x % 32;
  turn = turn == 0 ? kSets - 1 : turn - 1;
#pragma unroll 1
  for (int layer = 0; layer < p.count; ++layer, turn = next_turn(turn)) {
    uint32_t* const set = p.workspace + int64_t{turn} * p.layout.words;
    barrier_wait(barriers, layer & 1);
#pragma unroll 1
    for (uint32_t i = first + lane; i < last; i += 32) erase4(set + i * 4);
    asm volatile("fence.release.gpu;" ::: "memory");
    __syncwarp();
    if (lane == 0) barrier_arrive(barriers + 8);
  }
}

template <int Dim>
__device__ __forceinline__ Stage stage_of(const StackParams& p, int kind, uint32_t* set) {
  const int dim = static_cast<int>(p.x.dim), heads = p.heads * Dim, width = heads + 2 * p.kv_heads * Dim;
  const StackLayout& at = p.layout;
  const auto input = [&](int32_t offset) { return reinterpret_cast<const bf16*>(set + offset); };
  Stage s;
  s.kind = kind, s.wait = true, s.last = false;
  Share share = Share::of(kind == Stage::Qkv ? width / 8 : kind == Stage::GateUp ? p.inner / 4 : dim / 8);
  s.first = share.first, s.count = share.count;
  if (kind == Stage::Qkv) {
    s.x = nullptr, s.columns = dim, s.to = set + at.qkv, s.width = width;
  } else if (kind == Stage::Out) {
    s.x = input(at.attended), s.columns = heads, s.to = set + at.middle, s.width = dim;
  } else if (kind == Stage::GateUp) {
    s.x = input(at.middle), s.columns = dim, s.to = set + at.inner, s.width = p.inner;
  } else {
    s.x = input(at.inner), s.columns = p.inner, s.to = set + at.end, s.width = dim;
  }
  return s;
}

template <int Dim, Rows kRows>
__device__ __forceinline__ void consume(Consumer<Dim>& c, uint32_t turn) {
  const StackParams& p = c.p;
  auto* const stream = static_cast<uint32_t*>(p.x.data);
  // The residual stream of the block's columns stays with the threads that add to it.
  const Share share = Share::of(static_cast<uint32_t>(p.x.dim) / 8);
  float2 rest = make_float2(0.0f, 0.0f);
  if (c.warp < share.count && c.g < p.tokens) {
    const uint32_t word = stream[(c.g * p.x.dim + (share.first + c.warp) * 8) / 2 + c.t];
    rest = make_float2(low_half(word), high_half(word));
  }
  const auto* x = static_cast<const bf16*>(p.x.data);
  StackGemm<Dim, kRows> gemm(c);
  const uint32_t erased = shared_address(c.shared) + Layout<Dim>::kErase;
#pragma unroll 1
  for (int layer = 0; layer < p.count; ++layer) {
    uint32_t* const set = p.workspace + int64_t{turn} * p.layout.words;
    turn = next_turn(turn);
#pragma unroll 1
    for (int kind = 0; kind < 4; ++kind) {
      if (kind == Stage::Out) StackAttention<Dim>(c, layer, set).run();
      Stage s = stage_of<Dim>(p, kind, set);
      if (kind == Stage::Qkv) s.x = x, s.wait = layer > 0;
      if (kind == Stage::Down && layer + 1 == p.count) s.last = true, s.to = stream;
      if (kind == Stage::GateUp && layer > 0) barrier_wait(erased + 8, (layer - 1) & 1);
      gemm.run(s, rest);
      if (kind == Stage::GateUp && c.lane == 0) barrier_arrive(erased);
    }
    x = reinterpret_cast<const bf16*>(set + p.layout.end);
  }
  // All blocks have read it: this one has made something of what all of them made.
  if (blockIdx.x == 0 && threadIdx.x == 0) p.workspace[int64_t{kSets} * p.layout.words] = turn;
}

template <int Dim, Rows kRows>
__global__ void __launch_bounds__(kThreads, 1) stack_kernel(const __grid_constant__ StackParams p) {
  require_hopper();
  using L = Layout<Dim>;
  extern __shared__ __align__(128) uint8_t shared[];
  Plan& plan = *reinterpret_cast<Plan*>(shared + L::kPlan);
  static_assert(sizeof(Plan) <= L::kRows - L::kPlan);
  Cursor cursor;
  cursor.ring = shared_address(shared);
  cursor.full = cursor.ring + L::kBarriers, cursor.empty = cursor.full + 8 * kSlots;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kSlots; ++s) {
      barrier_init(cursor.full + 8 * s, 1);
      barrier_init(cursor.empty + 8 * s, kWarps);
    }
    barrier_init(cursor.ring + L::kErase, kWarps);
    barrier_init(cursor.ring + L::kErase + 8, 1);
    if (kRows == Rows::Few) barrier_init(cursor.ring + L::kPair, 1);
    barriers_ready();
  }
  if (threadIdx.x < static_cast<unsigned>(p.tokens)) plan.take(p, static_cast<int>(threadIdx.x));
  // Rows behind the last query of a group stay zero.
  for (int i = threadIdx.x; i < 8 * L::kQueryPitch / 2; i += kThreads)
    reinterpret_cast<uint32_t*>(shared + L::kQueries)[i] = 0;
  const uint32_t turn = p.workspace[int64_t{kSets} * p.layout.words];
  __syncthreads();
  if (threadIdx.x == 0) plan.make(p);
  if constexpr (kRows == Rows::Few) {
    cluster_arrive();
    cluster_wait();
  } else {
    __syncthreads();
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp >= kWarps) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
    if (warp == kWarps && one_lane()) Producer<Dim>(p, plan, cursor).run();
    if (warp == kWarps + 1) erase_sets(p, turn, cursor.ring + L::kErase);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
    Consumer<Dim> consumer{p, plan, shared, cursor, warp, lane, lane / 4, lane % 4};
    consume<Dim, kRows>(consumer, turn);
  }
}

// Whether clusters of two blocks run on all multiprocessors at a time.
template <class Kernel>
bool in_pairs(Kernel kernel, cudaLaunchConfig_t config) {
  static const bool all = [&] {
    config.attrs += 1, config.numAttrs = 1;
    int clusters = 0;
    if (config.gridDim.x % 2 != 0) return false;
    check_launch(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config), "layers");
    return clusters * 2 >= static_cast<int>(config.gridDim.x);
  }();
  return all;
}

template <int Dim, Rows kRows>
void launch_rows(const StackParams& p, Stream stream) {
  const auto kernel = stack_kernel<Dim, kRows>;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Layout<Dim>::kShared);
  check_launch(allowed, "layers");
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(multiprocessors()));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = Layout<Dim>::kShared;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeCooperative;
  attributes[0].val.cooperative = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {2, 1, 1};
  config.attrs = attributes;
  config.numAttrs = kRows == Rows::Few && in_pairs(kernel, config) ? 2 : 1;
  check_launch(cudaLaunchKernelEx(&config, kernel, p), "layers");
}

// Rows that are normed, and any, of which Rows::Few has several.
constexpr int64_t kFewDim = kChunk, kFewWidth = 3 * kChunk;

template <int Dim>
void launch_of(const StackParams& p, Stream stream) {
  const int64_t widest = std::max({p.x.dim, int64_t{p.heads} * p.head_dim, int64_t{p.inner}});
  if (p.tokens == 1) return launch_rows<Dim, Rows::One>(p, stream);
  if constexpr (Dim == 128) {
    if (p.x.dim <= kFewDim && widest <= kFewWidth) return launch_rows<Dim, Rows::Few>(p, stream);
  }
  launch_rows<Dim, Rows::Wide>(p, stream);
}

}  // namespace stack

StackLayout stack_layout(const StackParams& p, int processors) {
  StackLayout layout = blank<StackLayout>();
  int32_t at = 0;
  const auto take = [&](int64_t words) {
    const int32_t begin = at;
    at += static_cast<int32_t>(ceil_div(words, 32) * 32);
    return begin;
  };
  const auto rows = [&](int64_t width) { return take(kStackTokens * width / 2); };
  layout.qkv = rows(int64_t{p.heads + 2 * p.kv_heads} * p.head_dim);
  layout.attended = rows(int64_t{p.heads} * p.head_dim);
  layout.middle = rows(p.x.dim);
  layout.inner = rows(p.inner);
  layout.end = rows(p.x.dim);
  layout.part_words = 16 + p.heads / p.kv_heads * p.head_dim;
  layout.parts = take(int64_t{processors} * 2 * layout.part_words);
  layout.words = at;
  return layout;
}

int64_t stack_workspace_words(const StackLayout& layout) {
  return int64_t{stack::kSets} * layout.words + 4;
}

bool stack_fits(const StackParams& p, int processors) {
  const int64_t dim = p.x.dim, heads = int64_t{p.heads} * p.head_dim;
  const auto whole = [](int64_t columns) { return columns > 0 && columns % stack::kColumns == 0; };
  const bool tokens = p.tokens >= 1 && p.tokens <= kStackTokens && p.x.type == DType::BF16 &&
                      p.x.stride_n == dim && aligned16(p.x.data);
  const bool attention = (p.head_dim == 64 || p.head_dim == 128) && p.kv_heads > 0 &&
                         p.heads % p.kv_heads == 0 && p.heads / p.kv_heads <= 8 &&
                         (1 << p.block_shift) % stack::kTile == 0;
  const bool widths =
      whole(dim) && whole(heads) && whole(p.inner) && dim <= kStackWidth && heads <= kStackWidth;
  // Every block has rows of both: what it hands over tells others that it has read, and that it has erased its share.
  const bool shares = p.inner / 4 >= processors && (heads + 2 * p.kv_heads * p.head_dim) / 8 >= processors &&
                      ceil_div(dim / 8, processors) <= stack::kLongGroups;
  return p.count >= 1 && p.count <= kStackLayers && tokens && attention && widths && shares;
}

void launch_stack(const StackParams& p, Stream stream) {
  if (p.head_dim == 64) return stack::launch_of<64>(p, stream);
  stack::launch_of<128>(p, stream);
}

}  // namespace sluice::kernels::cuda

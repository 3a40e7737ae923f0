// GEMMs of many entries with the matrices of experts on Hopper's warpgroup instructions: out[e, :] = x[e, :] · W_gᵀ + bias_g for
// the entries e of each group g, which lie in a row; or gated as in grouped_gemm_sm90.cu, whose arguments these are.
//
// The two blocks of a cluster have the same 256 entries of a group and 128 weight rows each; each block reads half of the entries
// and sends them to both, so that 32 KB come from the L2 for every 256 x 128 x 64 products of a block (without, 48 KB, more than
// the L2 gives at the rate of the tensor cores). Each of two warpgroups has 128 entries, two times m64n128k16, sums in registers;
// parts of 64 entries beyond a group's last are neither loaded nor multiplied. One thread of a further warpgroup fills a ring of
// stages of 64 columns with the TMA unit.
//
// Clusters take tiles in their order (group_tiles.cuh), each the next one that is left: the first block's loader counts, and sends
// the number to the second. Which tile a stage begins stands beside the stage.
//
// Operations: 2 · entries · rows · cols; bytes: the matrices that have entries, once for as many tiles as run together, and the
// entries as often as there are 256 rows.
#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/moe/group_tiles.cuh"
#include "kernels/cuda/moe/grouped_gemm_cluster_sm90.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kDepth = 64, kPart = 64, kParts = 4, kEntries = kPart * kParts, kRows = 128;
constexpr int kPartBytes = kPart * 128, kXBytes = kParts * kPartBytes, kWeightBytes = kRows * 128;
constexpr int kStageBytes = kXBytes + kWeightBytes, kStages = 4;
constexpr int kGroupsOfWarps = 2, kThreads = 128 + 128 * kGroupsOfWarps, kBlocks = 2;
constexpr int kNumbers = 4;  // of tiles that are on their way to the second block
constexpr int kSums = 64;    // of a thread and 64 entries
constexpr int kNoTile = -1;

// Shared memory of a block behind the ring.
struct Control {
  uint64_t full[kStages], empty[kStages], told[kNumbers];
  int numbers[kNumbers];  // told by the first block
  int tiles[kStages];     // that a stage begins
  int bounds[kMostGroups + 1];
  GroupList list;
};
constexpr int kShared = kStages * kStageBytes + sizeof(Control) + 1024;
static_assert(kShared <= 232448);

struct ClusterArguments {
  bf16* out;
  int64_t out_stride;
  const CUtensorMap* weights;  // [groups], or null: a panel
  const float* const* biases;  // [groups] or null
  const float* bias;           // where there is one group, or null
  const int32_t* begin;        // [groups + 1], or null: one group with all entries
  int32_t* counter;            // or null: tiles by turns
  int groups, rows, bias_row;  // rows: columns of the result
  int map_rows;                // of a group's matrix in the panel
  int steps;                   // of kDepth columns
  int entries;                 // where `begin` is null
  int early;                   // as in grouped_gemm_sm90.cu
};

template <bool kGated>
inline constexpr int kColumns = kGated ? kRows / 2 : kRows;  // of the result that a block makes

__device__ __forceinline__ int parts_of(const GroupTile& tile) {
  return min(kParts, (tile.end - tile.entry + kPart - 1) / kPart);
}

// To both blocks, at the same place.
constexpr uint16_t kBoth = 3;

// One word to the second block, whose barrier counts its bytes.
__device__ __forceinline__ void tell(uint32_t word, uint32_t barrier, int value) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                   address_in(word, 1)),
               "r"(value), "r"(address_in(barrier, 1))
               : "memory");
}

// The thread of a block that fills its ring.
template <bool kGated>
struct Loader {
  const ClusterArguments& p;
  const CUtensorMap *x, *panel;
  Control& c;
  uint32_t ring;
  int rank = static_cast<int>(cluster_rank());
  GroupTile at;
  int stage = 0, round = 0, number = 0;

  __device__ __forceinline__ uint32_t full() const { return shared_address(&c.full[stage]); }
  __device__ __forceinline__ void next_stage() {
    if (++stage == kStages) stage = 0, ++round;
  }
  __device__ __forceinline__ void await_stage() const {
    if (round > 0) barrier_wait(shared_address(&c.empty[stage]), (round - 1) & 1);
  }
  // The tile after this one; both blocks call it as often.
  __device__ __forceinline__ int next_tile(int tile) {
    const int clusters = static_cast<int>(gridDim.x) / kBlocks;
    if (p.counter == nullptr) return tile + clusters;
    const int slot = number % kNumbers;
    const uint32_t word = shared_address(&c.numbers[slot]), barrier = shared_address(&c.told[slot]);
    int next = 0;
    if (rank == 0) {
      next = clusters + atomicAdd(p.counter, 1);
      tell(word, barrier, next);
    } else {
      barrier_expect(barrier, 4);
      barrier_wait(barrier, number / kNumbers & 1);
      next = *static_cast<volatile int*>(&c.numbers[slot]);
    }
    ++number;
    return next;
  }
  __device__ __forceinline__ int row() const { return at.row + rank * kColumns<kGated>; }
  __device__ __forceinline__ void load_weights(const CUtensorMap* weights, int row, int step) const {
    const uint32_t to = ring + stage * kStageBytes + kXBytes;
    constexpr int kHalf = kRows / 2;
#pragma unroll
    for (int box = 0; box < kRows; box += kExpertBoxRows)
      tma_load_2d(to + box * 128, weights, step * kDepth,
                  kGated && box >= kHalf ? p.rows + row + box - kHalf : row + box, full());
  }
  __device__ __forceinline__ void load_x(int step, int parts) const {
    for (int part = rank; part < parts; part += kBlocks)
      tma_load_2d_multicast(ring + stage * kStageBytes + part * kPartBytes, x, step * kDepth,
                            at.entry + part * kPart, full(), kBoth);
  }
  __device__ __forceinline__ void run() {
    int tile = static_cast<int>(blockIdx.x) / kBlocks, known = -1;  // known: the group whose map was acquired
    while (at.find(c.list, tile, kEntries, kBlocks * kColumns<kGated>)) {
      const int group = c.list.group[at.place], parts = parts_of(at);
      const CUtensorMap* weights = p.weights != nullptr ? p.weights + group : panel;
      const int first_row = row() + (p.weights != nullptr ? 0 : group * p.map_rows);
      if (p.weights != nullptr && group != known) acquire_map(weights);
      const auto begin_step = [&](int step) {
        await_stage();
        if (step == 0) c.tiles[stage] = tile;
        barrier_expect(full(), static_cast<uint32_t>(parts * kPartBytes + kWeightBytes));
        load_weights(weights, first_row, step);
      };
      int ahead = 0;
      if (p.early != 0 && known < 0) {  // the entries are not there yet
        ahead = p.steps < kStages ? p.steps : kStages;
        for (int step = 0; step < ahead; ++step, next_stage()) begin_step(step);
        wait_for_producer();
        stage = round = 0;
        for (int step = 0; step < ahead; ++step, next_stage()) load_x(step, parts);
      }
      for (int step = ahead; step < p.steps; ++step, next_stage()) {
        begin_step(step);
        load_x(step, parts);
      }
      known = group;
      tile = next_tile(tile);
    }
    if (p.early != 0 && known < 0) wait_for_producer();
    await_stage();
    c.tiles[stage] = kNoTile;
    barrier_arrive(full());
  }
};

__device__ __forceinline__ float silu(float x) {
  return __fdividef(x, 1.0f + __expf(-x));
}

// A warpgroup that multiplies.
template <bool kGated>
struct Multiplier {
  const ClusterArguments& p;
  Control& c;
  uint32_t ring;
  GroupTile at;
  int stage = 0, round = 0;
  int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128;
  float sums[2][kSums];

  __device__ __forceinline__ void await_stage() const {
    barrier_wait(shared_address(&c.full[stage]), round & 1);
  }
  __device__ __forceinline__ void next_stage() {
    if (++stage == kStages) stage = 0, ++round;
  }
  // To both blocks: each sends entries to the other.
  __device__ __forceinline__ void give_back(int stage) const {
    if (thread < kBlocks) barrier_arrive_at(shared_address(&c.empty[stage]), thread);
  }
  // Until all four warps are here: what two threads give back, all have read.
  __device__ __forceinline__ void meet() const {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
  }
  __device__ __forceinline__ void pass() {
    for (int step = 0; step < p.steps; ++step, next_stage()) {
      await_stage();
      meet();
      give_back(stage);
    }
  }
  template <int Own>
  __device__ __forceinline__ void add() {
    int before = 0;  // the stage of the step before
    for (int step = 0; step < p.steps; ++step) {
      await_stage();
      const uint32_t operands = ring + stage * kStageBytes;
      const uint64_t b = describe_operand(operands + kXBytes);
      cute::warpgroup_arrive();
#pragma unroll
      for (int k = 0; k < kDepth / 16; ++k) {
#pragma unroll
        for (int part = 0; part < Own; ++part) {
          const uint64_t a = describe_operand(operands + (2 * group + part) * kPartBytes);
          multiply(sums[part], a + 2 * k, b + 2 * k, step != 0 || k != 0 ? 1 : 0);
        }
      }
      cute::warpgroup_commit_batch();
      cute::warpgroup_wait<1>();
      if (step > 0) give_back(before);
      before = stage;
      next_stage();
    }
    cute::warpgroup_wait<0>();
#pragma unroll
    for (int part = 0; part < Own; ++part)
#pragma unroll
      for (float& sum : sums[part]) asm volatile("" : "+f"(sum)::"memory");  // not to be read before the wait
    give_back(before);
  }
  // Two neighbouring columns of the result from sums `i` and `i + 1` of 64 entries.
  __device__ __forceinline__ uint32_t result(const float (&own)[kSums], int i, int column,
                                             const float* bias) const {
    float first = own[i], second = own[i + 1];
    if (bias != nullptr) first += bias[column], second += bias[column + 1];
    if constexpr (kGated) {
      float up = own[kSums / 2 + i], other = own[kSums / 2 + i + 1];
      if (bias != nullptr) up += bias[p.rows + column], other += bias[p.rows + column + 1];
      first = silu(first) * up, second = silu(second) * other;
    }
    return pack_pair(first, second);
  }
  // A warp's 16 entries from `entry` on, eight columns to a lane: 64 bytes of a row together.
  __device__ __forceinline__ void store(const float (&own)[kSums], int entry, int first_column,
                                        const float* bias) const {
    const int lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int i = 0; i < kColumns<kGated> / 16; ++i) {
      const int quad = i / 2, half = i % 2;  // of the columns; of the rows: g or g + 8
      uint32_t v[4];
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const int eight = 4 * quad + q, column = first_column + eight * 8 + 2 * t;
        v[q] = result(own, eight * 4 + half * 2, min(column, p.rows - 2), bias);
      }
      transpose_four(v, t);
      const int column = first_column + (4 * quad + t) * 8, at_entry = entry + g + half * 8;
      if (at_entry < at.end && column < p.rows)
        *reinterpret_cast<uint4*>(p.out + at_entry * p.out_stride + column) =
            make_uint4(v[0], v[1], v[2], v[3]);
    }
  }
  __device__ __forceinline__ void run() {
    const int rank = static_cast<int>(cluster_rank());
    for (;;) {
      await_stage();
      const int tile = c.tiles[stage];
      if (tile == kNoTile) return;
      meet();
      at.find(c.list, tile, kEntries, kBlocks * kColumns<kGated>);
      const int parts = parts_of(at) - 2 * group;
      if (parts <= 0) {
        pass();
        continue;
      }
      parts == 1 ? add<1>() : add<2>();
      const int number = c.list.group[at.place];
      const float* bias = p.biases != nullptr ? p.biases[number] : p.bias;
      if (bias != nullptr) bias += p.bias_row;
#pragma unroll
      for (int part = 0; part < 2; ++part)
        if (part < parts)
          store(sums[part], at.entry + (2 * group + part) * kPart + thread / 32 * 16,
                at.row + rank * kColumns<kGated>, bias);
    }
  }
};

template <bool kGated>
__global__ void __cluster_dims__(kBlocks) __launch_bounds__(kThreads, 1)
    grouped_gemm_cluster_kernel(const __grid_constant__ CUtensorMap x,
                                const __grid_constant__ CUtensorMap panel, const ClusterArguments p) {
  require_hopper();
  extern __shared__ uint8_t raw[];
  uint8_t* base = raw + bytes_to_aligned(raw);
  const uint32_t ring = shared_address(base);
  Control& c = *reinterpret_cast<Control*>(base + kStages * kStageBytes);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      barrier_init(shared_address(&c.full[s]), 1);
      barrier_init(shared_address(&c.empty[s]), kGroupsOfWarps * kBlocks);
    }
    for (uint64_t& told : c.told) barrier_init(shared_address(&told), 1);
    barriers_ready();
  }
  if (p.early == 0) wait_for_producer();
  allow_dependents();  // not before: what is behind may read early what this kernel waited for
  copy_bounds(c.bounds, p.begin, p.groups, p.entries);
  __syncthreads();
  constexpr int kTileRows = kBlocks * kColumns<kGated>;
  if (threadIdx.x < 32) c.list.fill(c.bounds, p.groups, kEntries, (p.rows + kTileRows - 1) / kTileRows);
  __syncthreads();
  cluster_sync();
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x < 32 && one_lane()) Loader<kGated>{p, &x, &panel, c, ring}.run();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    if (p.early != 0) wait_for_producer();
    Multiplier<kGated>{p, c, ring}.run();
  }
  __syncwarp();
  cluster_sync();  // a block's stages and barriers stay until the other has nothing more for them
}

CUtensorMap map_of(const void* data, int64_t columns, int64_t rows, int64_t stride, uint32_t box_rows) {
  return make_tensor_map(data, {2,
                                {static_cast<uint64_t>(columns), static_cast<uint64_t>(rows)},
                                {static_cast<uint64_t>(stride * 2)},
                                {kDepth, box_rows}});
}

template <bool kGated>
void launch_kind(const GroupedGemmSm90Params& p, Stream stream) {
  static const int clusters = multiprocessors() / kBlocks;
  static const cudaError_t attribute = cudaFuncSetAttribute(
      grouped_gemm_cluster_kernel<kGated>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  check_launch(attribute, "grouped GEMM of clusters");
  ClusterArguments a{};
  a.out = static_cast<bf16*>(p.out.data);
  a.out_stride = p.out.stride_n;
  a.weights = static_cast<const CUtensorMap*>(p.weights);
  a.biases = p.biases;
  a.bias = p.bias;
  a.begin = p.begin;
  a.counter = p.counter;
  a.groups = p.groups;
  a.rows = static_cast<int>(kGated ? p.shape.rows / 2 : p.shape.rows);
  a.bias_row = static_cast<int>(p.bias_row);
  a.map_rows = static_cast<int>(p.shape.rows);
  a.steps = static_cast<int>(ceil_div(p.shape.cols, kDepth));
  a.entries = static_cast<int>(p.out.n);
  a.early = p.weights != nullptr ? p.early : 0;
  const CUtensorMap x = map_of(p.x, p.shape.cols, p.out.n, p.shape.cols, kPart);
  const int64_t width = int64_t{a.steps} * kDepth;
  const CUtensorMap panel = p.panel == nullptr
                                ? CUtensorMap{}
                                : map_of(p.panel, width, p.groups * p.shape.rows, width, kExpertBoxRows);
  const Grid grid{dim3(static_cast<unsigned>(clusters * kBlocks)), dim3(kThreads), kShared};
  launch("grouped GEMM of clusters", grouped_gemm_cluster_kernel<kGated>, grid, stream, x, panel, a);
}

}  // namespace

bool grouped_gemm_cluster_fits(const GroupedGemmSm90Params& p) {
  const int64_t rows = p.gated != 0 ? p.shape.rows / 2 : p.shape.rows;
  // With fewer steps to a tile the first block could tell more numbers than there are places for.
  return p.out.type == DType::BF16 && p.x_group == 0 && p.panel_parts == 1 && rows % 8 == 0 &&
         rows >= kRows && p.shape.cols >= kStages * kDepth && p.out.stride_n % 8 == 0 &&
         aligned16(p.out.data);
}

void launch_grouped_gemm_cluster(const GroupedGemmSm90Params& p, Stream stream) {
  p.gated != 0 ? launch_kind<true>(p, stream) : launch_kind<false>(p, stream);
}

}  // namespace sluice::kernels::cuda

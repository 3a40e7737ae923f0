// GEMMs of entries with the matrices of experts on Hopper's warpgroup instructions: out[e, :] = x[e, :] · W_gᵀ + bias_g
// for the entries e of each group g, which lie in a row. Matrices are bf16, each where it is, or panels of decoded ones.
//
// A tile is entries of one group x weight rows: 128 x 256, two warpgroups with 64 entries each, m64n256k16, where the
// operations are the limit; 16 or 32 x 64 where reading the matrices is, 128 of gate and up. Sums are in registers. One thread of a further warpgroup
// fills a ring of stages of 64 columns with the TMA unit. The blocks, one for each multiprocessor, walk over the tiles by
// themselves (group_tiles.cuh), each taking the next one that is left where there is a counter: tiles differ in time, and so do
// multiprocessors. Which tile a stage begins stands beside the stage.
//
// Gated (Silu): half of a tile's rows are of the gate, the other half those of the up matrix that go with them, so that a thread has
// both sums and stores one number for them.
//
// Entries in f32 come as two bf16 numbers each, the second of what the first leaves over. A stage holds both next to the
// weights, and their products go to the same sums: 16 bits of precision at twice the multiplications, with weights read
// once. A panel's rows may have a second part too, behind the first: more steps, with the first part of the entries.
//
// Early: the groups are known before the kernel in front has ended, and the first stages' weights are on their way while its last
// blocks still run. Either the host knows the groups, or they were written in front of a grouped GEMM that is in front of this
// one: it lets a kernel behind it start only after it has seen them.
//
// Operations: 2 · parts · entries · rows · cols, where f32 entries have two parts, with panels of two parts three; bytes:
// the matrices that have entries, once for as many tiles as run together.
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/gemm/grouped/grouped_gemm_params.h"
#include "kernels/cuda/moe/group_tiles.cuh"
#include "kernels/cuda/moe/grouped_gemm_cluster_sm90.h"

namespace sluice::kernels::cuda {

namespace {

constexpr int kDepth = 64;
constexpr int kSharedLimit = 232448;
// Of an expert in the mean: from here on tiles have twice as many entries, are large, and are of clusters.
constexpr int64_t kSomeEntries = 6, kManyEntries = 24, kClusterEntries = 160;

// Rows of a tile go with 16 or 32 entries, or 128; those beyond them of the wgmma's 64 are what follows in shared memory, and
// no result depends on them.
template <int Parts_, int Entries_, int Rows_, bool Gated_ = false>
struct ExpertShape {
  static constexpr int kParts = Parts_, kEntries = Entries_, kRows = Rows_;
  static constexpr bool kGated = Gated_;
  static constexpr int kColumns = kGated ? kRows / 2 : kRows;  // of the result
  static constexpr int kGroups = kEntries > 64 ? 2 : 1;        // warpgroups that multiply
  static constexpr int kThreads = 128 + 128 * kGroups;
  static constexpr int kPartBytes = kEntries * 128, kXBytes = kParts * kPartBytes;
  static constexpr int kBytes = kXBytes + kRows * 128;  // of a stage
  static constexpr int kListBytes = sizeof(GroupList) + (kMostGroups + 1) * 4;
  static constexpr int kStages = (kSharedLimit - 1024 - kListBytes - 512) / kBytes;
  static constexpr int kBarriers = kStages * kBytes, kTiles = kBarriers + 2 * kStages * 8;
  static constexpr int kList = kTiles + kStages * 4, kBounds = kList + sizeof(GroupList);
  static constexpr int kShared = kBounds + (kMostGroups + 1) * 4 + 1024;
  static_assert(kColumns % kExpertBoxRows == 0);
  static_assert(kStages >= 3 && kShared <= kSharedLimit && kRows % kExpertBoxRows == 0 && kBytes % 1024 == 0);
  static_assert((kParts - 1) * kPartBytes + 64 * kGroups * 128 <= kBytes, "operands within a stage");
};

struct ExpertArguments {
  void* out;
  int64_t out_stride;
  const CUtensorMap* weights;  // [groups], or null: a panel
  const float* const* biases;  // [groups] or null
  const float* bias;           // where there is one group, or null
  const int32_t* begin;        // [groups + 1], or null: one group with all entries
  int groups, rows, bias_row;  // rows: columns of the result; bias_row: of the matrices' first
  int steps, rest_steps;       // of kDepth columns; rest_steps: those of the panel's second part
  int entries;                 // rows of x from an entry's first part to its second
  int x_group;                 // by head: columns of x from a group's first to the next one's; else 0
  int64_t out_group;           // by head: the same of the result
  int32_t* counter;  // of the tiles that are taken beyond the first of every block, or null: by turns
  int early;         // begin and counter are there before the kernel in front has ended
  int once;          // most matrices are read once: their lines leave the L2 first
};

constexpr int kNoTile = -1;

// The thread that fills the ring.
template <class S>
struct ExpertLoader {
  const ExpertArguments& p;
  const CUtensorMap *x, *panel;
  const GroupList& list;
  int* tiles;  // [stages]
  uint32_t shared;
  GroupTile at;
  int stage = 0, round = 0;
  uint64_t policy = read_once_policy();  // of matrices where p.once says so

  __device__ __forceinline__ uint32_t full() const { return shared + S::kBarriers + 8 * stage; }
  __device__ __forceinline__ void next_stage() {
    if (++stage == S::kStages) stage = 0, ++round;
  }
  __device__ __forceinline__ void await_stage() const {
    if (round > 0) barrier_wait(full() + 8 * S::kStages, (round - 1) & 1);
  }
  template <int Parts>
  __device__ __forceinline__ void expect() const {
    barrier_expect(full(), S::kBytes - (S::kParts - Parts) * S::kPartBytes);
  }
  // `row`: of the map.
  __device__ __forceinline__ void load_weights(const CUtensorMap* weights, int row, int step) const {
    const uint32_t to = shared + stage * S::kBytes + S::kXBytes;
#pragma unroll
    for (int box = 0; box < S::kRows; box += kExpertBoxRows) {
      const int box_row = S::kGated && box >= S::kColumns ? p.rows + row + box - S::kColumns : row + box;
      if (p.once != 0) {
        tma_load_2d(to + box * 128, weights, step * kDepth, box_row, full(), policy);
      } else {
        tma_load_2d(to + box * 128, weights, step * kDepth, box_row, full());
      }
    }
  }
  template <int Parts>
  __device__ __forceinline__ void load_x(int step) const {
    const int group = list.group[at.place];
    const int entry = at.entry - (p.x_group > 0 ? list.begin[at.place] : 0);
#pragma unroll
    for (int part = 0; part < Parts; ++part)
      tma_load_2d(shared + stage * S::kBytes + part * S::kPartBytes, x, p.x_group * group + step * kDepth,
                  part * p.entries + entry, full());
  }
  // Steps [from, to) of the tile with `Parts` of the entries, from column 64 · from of the weights on.
  template <int Parts>
  __device__ __forceinline__ void load(const CUtensorMap* weights, int row, int from, int to, int x_from) {
    for (int step = from; step < to; ++step, next_stage()) {
      await_stage();
      expect<Parts>();
      load_weights(weights, row, step);
      load_x<Parts>(step - x_from);
    }
  }
  // The weights of the first tile's first steps; how many. The entries are not there yet.
  __device__ __forceinline__ int load_ahead(const CUtensorMap* weights) {
    const int ahead = p.steps < S::kStages ? p.steps : S::kStages;
    for (int step = 0; step < ahead; ++step, next_stage()) {
      expect<S::kParts>();
      load_weights(weights, at.row, step);
    }
    wait_for_producer();
    stage = round = 0;
    for (int step = 0; step < ahead; ++step, next_stage()) load_x<S::kParts>(step);
    return ahead;
  }
  __device__ __forceinline__ void load_tile(int known) {
    const int group = list.group[at.place];
    if (p.weights == nullptr) {
      const int row = group * p.rows + at.row;
      load<S::kParts>(panel, row, 0, p.steps, 0);
      return load<1>(panel, row, p.steps, p.steps + p.rest_steps, p.steps);
    }
    const CUtensorMap* weights = p.weights + group;
    if (group != known) acquire_map(weights);
    const int ahead = p.early != 0 && known < 0 ? load_ahead(weights) : 0;
    load<S::kParts>(weights, at.row, ahead, p.steps, 0);
  }
  __device__ __forceinline__ void run() {
    int tile = static_cast<int>(blockIdx.x), known = -1;  // known: the group whose map was acquired
    while (at.find(list, tile, S::kEntries, S::kColumns)) {
      const int next = p.counter != nullptr ? static_cast<int>(gridDim.x) + atomicAdd(p.counter, 1)
                                            : tile + static_cast<int>(gridDim.x);
      await_stage();
      tiles[stage] = tile;
      load_tile(known);
      known = list.group[at.place];
      tile = next;
    }
    if (p.early != 0 && known < 0) wait_for_producer();
    await_stage();
    tiles[stage] = kNoTile;
    barrier_arrive(full());
  }
};

__device__ __forceinline__ void store_pair(float* out, float first, float second) {
  *reinterpret_cast<float2*>(out) = make_float2(first, second);
}
__device__ __forceinline__ void store_pair(bf16* out, float first, float second) {
  *reinterpret_cast<uint32_t*>(out) = pack_pair(first, second);
}

__device__ __forceinline__ float silu(float x) {
  return __fdividef(x, 1.0f + __expf(-x));
}

// A warp's 16 entries from `entry` on, of which those before `end` are there.
template <class T, class S, int Sums>
__device__ __forceinline__ void store_entries(const ExpertArguments& p, T* out, const float (&sums)[Sums],
                                              const float* bias, int entry, int end, int row) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int eight = 0; eight < S::kColumns / 8; ++eight) {
    const int column = row + eight * 8 + lane % 4 * 2;
    if (column >= p.rows) return;
    float add[4] = {};  // of both columns, then of the up matrix
    if (bias != nullptr) {
      add[0] = bias[column], add[1] = bias[column + 1];
      if constexpr (S::kGated) add[2] = bias[p.rows + column], add[3] = bias[p.rows + column + 1];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = entry + half * 8 + lane / 4;
      if (at >= end) continue;
      float first = sums[eight * 4 + half * 2] + add[0], second = sums[eight * 4 + half * 2 + 1] + add[1];
      if constexpr (S::kGated) {
        first = silu(first) * (sums[Sums / 2 + eight * 4 + half * 2] + add[2]);
        second = silu(second) * (sums[Sums / 2 + eight * 4 + half * 2 + 1] + add[3]);
      }
      store_pair(out + at * p.out_stride + column, first, second);
    }
  }
}

// A warpgroup that multiplies.
template <class T, class S>
struct ExpertMultiplier {
  const ExpertArguments& p;
  const GroupList& list;
  const int* tiles;  // [stages]
  uint32_t shared;
  GroupTile at;
  int stage = 0, round = 0;
  int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128;
  int before = -1;  // the stage whose wgmmas may be under way
  float sums[S::kRows / 2];

  __device__ __forceinline__ void await_stage() const {
    barrier_wait(shared + S::kBarriers + 8 * stage, round & 1);
  }
  __device__ __forceinline__ void next_stage() {
    if (++stage == S::kStages) stage = 0, ++round;
  }
  __device__ __forceinline__ void give_back(int stage) const {
    if (thread == 0) barrier_arrive(shared + S::kBarriers + 8 * (S::kStages + stage));
  }
  // `Parts` of the entries with each of the next `steps` stages.
  template <int Parts>
  __device__ __forceinline__ void add(int steps, bool fresh) {
    for (int step = 0; step < steps; ++step) {
      await_stage();
      const uint32_t operands = shared + stage * S::kBytes;
      const uint64_t b = describe_operand(operands + S::kXBytes);
      cute::warpgroup_arrive();
#pragma unroll
      for (int k = 0; k < kDepth / 16; ++k) {
#pragma unroll
        for (int part = 0; part < Parts; ++part) {
          const uint64_t a = describe_operand(operands + part * S::kPartBytes + group * 64 * 128);
          multiply(sums, a + 2 * k, b + 2 * k, !fresh || step != 0 || k != 0 || part != 0 ? 1 : 0);
        }
      }
      cute::warpgroup_commit_batch();
      cute::warpgroup_wait<1>();
      if (before >= 0) give_back(before);
      before = stage;
      next_stage();
    }
  }
  // Until all four warps are here: what one thread gives back, all have read.
  __device__ __forceinline__ void meet() const {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
  }
  // A tile that ends with the other group's entries.
  __device__ __forceinline__ void pass(int steps) {
    for (int step = 0; step < steps; ++step, next_stage()) {
      await_stage();
      meet();
      give_back(stage);
    }
  }
  __device__ __forceinline__ void run() {
    for (;;) {
      await_stage();
      const int tile = tiles[stage];
      if (tile == kNoTile) return;
      meet();
      at.find(list, tile, S::kEntries, S::kColumns);
      const int entry = at.entry + group * 64, end = min(at.end, at.entry + S::kEntries);
      if (entry >= end) {
        pass(p.steps + p.rest_steps);
        continue;
      }
      add<S::kParts>(p.steps, true);
      if (p.rest_steps > 0) add<1>(p.rest_steps, false);
      cute::warpgroup_wait<0>();
#pragma unroll
      for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");  // not to be read before the wait
      give_back(before);
      before = -1;
      const int number = list.group[at.place];
      const float* bias = p.biases != nullptr ? p.biases[number] : p.bias;
      T* out = static_cast<T*>(p.out);
      if (p.x_group > 0) out += number * p.out_group - int64_t{list.begin[at.place]} * p.out_stride;
      store_entries<T, S>(p, out, sums, bias != nullptr ? bias + p.bias_row : nullptr,
                          entry + thread / 32 * 16, end, at.row);
    }
  }
};

template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    expert_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap panel,
                  const ExpertArguments p) {
  require_hopper();
  extern __shared__ uint8_t raw[];
  uint8_t* base = raw + bytes_to_aligned(raw);
  const uint32_t shared = shared_address(base);
  GroupList& list = *reinterpret_cast<GroupList*>(base + S::kList);
  int *const tiles = reinterpret_cast<int*>(base + S::kTiles), *const bounds =
                                                                   reinterpret_cast<int*>(base + S::kBounds);
  if (threadIdx.x == 0) {
    const uint32_t full = shared + S::kBarriers, empty = full + 8 * S::kStages;
    for (int s = 0; s < S::kStages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, S::kGroups);
    }
    barriers_ready();
  }
  if (p.early == 0) wait_for_producer();
  allow_dependents();  // not before: what is behind may read early what this kernel waited for
  copy_bounds(bounds, p.begin, p.groups, p.entries);
  __syncthreads();
  if (threadIdx.x < 32) list.fill(bounds, p.groups, S::kEntries, (p.rows + S::kColumns - 1) / S::kColumns);
  __syncthreads();
  if (threadIdx.x < 128) {
    if constexpr (S::kGroups > 1) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x < 32 && one_lane()) ExpertLoader<S>{p, &x, &panel, list, tiles, shared}.run();
  } else {
    if constexpr (S::kGroups > 1) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    if (p.early != 0) wait_for_producer();
    ExpertMultiplier<T, S>{p, list, tiles, shared}.run();
  }
}

template <class T, class S>
void launch_shape(const GroupedGemmSm90Params& p, Stream stream) {
  static const int processors = multiprocessors();
  static const cudaError_t attribute =
      cudaFuncSetAttribute(expert_kernel<T, S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kShared);
  check_launch(attribute, "grouped GEMM");
  ExpertArguments arguments{};
  arguments.out = p.out.data;
  arguments.out_stride = p.out.stride_n;
  arguments.weights = static_cast<const CUtensorMap*>(p.weights);
  arguments.biases = p.biases;
  arguments.bias = p.bias;
  arguments.begin = p.begin;
  arguments.groups = p.groups;
  arguments.rows = static_cast<int>(S::kGated ? p.shape.rows / 2 : p.shape.rows);
  arguments.bias_row = static_cast<int>(p.bias_row);
  arguments.steps = static_cast<int>(ceil_div(p.shape.cols, kDepth));
  arguments.rest_steps = (p.panel_parts - 1) * arguments.steps;
  arguments.entries = static_cast<int>(p.out.n);
  arguments.x_group = static_cast<int>(p.x_group);
  arguments.out_group = p.out_group;
  arguments.counter = p.counter;
  arguments.once = p.weights != nullptr && p.x_group == 0 && p.out.n / p.groups < kSomeEntries ? 1 : 0;
  arguments.early = p.weights != nullptr && (p.early != 0 || p.begin == nullptr) ? 1 : 0;
  const auto x_width = static_cast<uint64_t>(p.shape.cols + (p.x_group > 0 ? p.x_group * (p.groups - 1) : 0));
  const auto x_stride = static_cast<uint64_t>(p.x_stride > 0 ? p.x_stride : p.shape.cols);
  const CUtensorMap x = make_tensor_map(
      p.x, {2, {x_width, static_cast<uint64_t>(S::kParts * p.out.n)}, {x_stride * 2}, {kDepth, S::kEntries}});
  const auto width = static_cast<uint64_t>(p.panel_parts * arguments.steps * kDepth);
  const CUtensorMap panel =
      p.panel == nullptr ? CUtensorMap{}
                         : make_tensor_map(p.panel, {2,
                                                     {width, static_cast<uint64_t>(p.groups * p.shape.rows)},
                                                     {width * 2},
                                                     {kDepth, kExpertBoxRows}});
  const Grid grid{dim3(static_cast<unsigned>(processors)), dim3(S::kThreads), S::kShared};
  launch("grouped GEMM", expert_kernel<T, S>, grid, stream, x, panel, arguments);
}

}  // namespace

bool experts_fit(const Matrix& shape, int64_t groups, int64_t entries) {
  return shape.cols % 8 == 0 && shape.rows % 2 == 0 && shape.row_bytes % 16 == 0 && shape.rows < (1 << 30) &&
         groups <= kMostGroups && entries < (1 << 29);
}

static_assert(sizeof(CUtensorMap) == kExpertMapBytes);
void write_expert_map(std::byte* out, const Matrix& matrix) {
  const CUtensorMap map =
      make_tensor_map(matrix.data, {2,
                                    {static_cast<uint64_t>(matrix.cols), static_cast<uint64_t>(matrix.rows)},
                                    {static_cast<uint64_t>(matrix.row_bytes)},
                                    {kDepth, kExpertBoxRows}});
  std::memcpy(out, &map, sizeof map);
}

void launch_grouped_gemm_sm90(const GroupedGemmSm90Params& p, Stream stream) {
  const int64_t mean = p.x_group > 0 ? p.out.n : p.out.n / p.groups;
  const bool many = mean >= kManyEntries, some = mean >= kSomeEntries;
  if (mean >= kClusterEntries && grouped_gemm_cluster_fits(p)) return launch_grouped_gemm_cluster(p, stream);
  if (p.gated != 0)
    return many   ? launch_shape<bf16, ExpertShape<1, 128, 256, true>>(p, stream)
           : some ? launch_shape<bf16, ExpertShape<1, 32, 128, true>>(p, stream)
                  : launch_shape<bf16, ExpertShape<1, 16, 128, true>>(p, stream);
  if (p.out.type == DType::F32)
    return many ? launch_shape<float, ExpertShape<2, 128, 256>>(p, stream)
                : launch_shape<float, ExpertShape<2, 16, 64>>(p, stream);
  if (many && p.shape.rows <= 128) return launch_shape<bf16, ExpertShape<1, 128, 128>>(p, stream);
  many   ? launch_shape<bf16, ExpertShape<1, 128, 256>>(p, stream)
  : some ? launch_shape<bf16, ExpertShape<1, 32, 64>>(p, stream)
         : launch_shape<bf16, ExpertShape<1, 16, 64>>(p, stream);
}

}  // namespace sluice::kernels::cuda

// GEMMs of entries with the matrices of experts on Hopper's warpgroup instructions: out[e, :] = x[e, :] · W_gᵀ + bias_g
// for the entries e of each group g, which lie in a row. Matrices are bf16, each where it is, or panels of decoded ones.
//
// A tile is entries of one group x weight rows: 128 x 256, two warpgroups with 64 entries each, m64n256k16, where the
// operations are the limit; 16 x 64 where reading the matrices is. Sums are in registers. One thread of a further warpgroup
// fills a ring of stages of 64 columns with the TMA unit. How many entries a group has is known on the device
// only, so the blocks, one for each multiprocessor, walk over the tiles by themselves: tiles of a group one after the other,
// those with the same rows together, so that the L2 holds what they share.
//
// Entries in f32 come as two bf16 numbers each, the second of what the first leaves over. A stage holds both next to the
// weights, and their products go to the same sums: 16 bits of precision at twice the multiplications, with weights read
// once. A panel's rows may have a second part too, behind the first: more steps, with the first part of the entries.
//
// Operations: 2 · parts · entries · rows · cols, where f32 entries have two parts, with panels of two parts three; bytes:
// the matrices that have entries, once for as many tiles as run together.
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/gemm/grouped_gemm_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kDepth = 64, kBoxRows = 64;
constexpr int kMaxExperts = 1024, kSharedLimit = 232448;
constexpr int64_t kManyEntries = 24;  // of an expert in the mean: from here on tiles are large

// Rows of a tile go with 16 entries or 128; those beyond the 16 of the wgmma's 64 are what follows in shared memory, and
// no result depends on them.
template <int Parts_, int Entries_, int Rows_>
struct ExpertShape {
  static constexpr int kParts = Parts_, kEntries = Entries_, kRows = Rows_;
  static constexpr int kGroups = kEntries > 64 ? 2 : 1;  // warpgroups that multiply
  static constexpr int kThreads = 128 + 128 * kGroups;
  static constexpr int kPartBytes = kEntries * 128, kXBytes = kParts * kPartBytes;
  static constexpr int kBytes = kXBytes + kRows * 128;  // of a stage
  static constexpr int kBeginBytes = (kMaxExperts + 1) * 4;
  static constexpr int kStages = (kSharedLimit - 1024 - kBeginBytes - 256) / kBytes;
  static constexpr int kBarriers = kStages * kBytes, kBegin = kBarriers + 2 * kStages * 8;
  static constexpr int kShared = kBegin + kBeginBytes + 1024;
  static_assert(kStages >= 3 && kShared <= kSharedLimit && kRows % kBoxRows == 0 && kBytes % 1024 == 0);
  static_assert((kParts - 1) * kPartBytes + 64 * kGroups * 128 <= kBytes, "operands within a stage");
};

struct ExpertArguments {
  void* out;
  int64_t out_stride;
  const CUtensorMap* weights;  // [groups], or null: a panel
  const float* const* biases;  // [groups] or null
  const float* bias;           // where there is one group, or null
  const int32_t* begin;        // [groups + 1], or null: one group with all entries
  int groups, rows, bias_row;  // bias_row: of the matrices' first
  int steps, rest_steps;       // of kDepth columns; rest_steps: those of the panel's second part
  int entries;                 // rows of x from an entry's first part to its second
};

// Where a block stands: its tile, and the stage of its next step.
template <class S>
struct ExpertCursor {
  const int* begin;
  int row_tiles, groups;
  int tile = static_cast<int>(blockIdx.x);
  int group = 0, first = 0;  // first: tile with which the group begins
  int stage = 0, round = 0;

  __device__ __forceinline__ ExpertCursor(const ExpertArguments& p, const int* starts)
      : begin(starts), row_tiles((p.rows + S::kRows - 1) / S::kRows), groups(p.groups) {
    find_group();
  }
  __device__ __forceinline__ int entry_tiles() const {
    return (begin[group + 1] - begin[group] + S::kEntries - 1) / S::kEntries;
  }
  __device__ __forceinline__ void find_group() {
    for (; group < groups; ++group) {
      const int tiles = entry_tiles() * row_tiles;
      if (tile < first + tiles) return;
      first += tiles;
    }
  }
  __device__ __forceinline__ bool live() const { return group < groups; }
  __device__ __forceinline__ int entry() const {
    return begin[group] + (tile - first) % entry_tiles() * S::kEntries;
  }
  __device__ __forceinline__ int row() const { return (tile - first) / entry_tiles() * S::kRows; }
  __device__ __forceinline__ void next_tile() {
    tile += static_cast<int>(gridDim.x);
    find_group();
  }
  __device__ __forceinline__ void next_stage() {
    if (++stage == S::kStages) stage = 0, ++round;
  }
};

// A tensor map in device memory: what was written there by a copy is seen by the TMA unit.
__device__ __forceinline__ void acquire_map(const CUtensorMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

// The thread that fills the ring.
template <class S>
struct ExpertLoader {
  const ExpertArguments& p;
  const CUtensorMap *x, *panel;
  ExpertCursor<S> cursor;
  uint32_t shared;

  // Steps [from, to) of the tile at the cursor, with `Parts` of the entries. `row`: of the map.
  template <int Parts>
  __device__ __forceinline__ void load(const CUtensorMap* weights, int row, int from, int to) {
    const uint32_t full = shared + S::kBarriers, empty = full + 8 * S::kStages;
    const int entry = cursor.entry();
    for (int step = from; step < to; ++step) {
      if (cursor.round > 0) barrier_wait(empty + 8 * cursor.stage, (cursor.round - 1) & 1);
      const uint32_t barrier = full + 8 * cursor.stage, at = shared + cursor.stage * S::kBytes;
      barrier_expect(barrier, S::kBytes - (S::kParts - Parts) * S::kPartBytes);
#pragma unroll
      for (int part = 0; part < Parts; ++part)
        tma_load_2d(at + part * S::kPartBytes, x, (step - from) * kDepth, part * p.entries + entry, barrier);
#pragma unroll
      for (int box = 0; box < S::kRows; box += kBoxRows)
        tma_load_2d(at + S::kXBytes + box * 128, weights, step * kDepth, row + box, barrier);
      cursor.next_stage();
    }
  }
  __device__ __forceinline__ void run() {
    int known = -1;  // the group whose map was acquired
    for (; cursor.live(); cursor.next_tile()) {
      if (p.weights == nullptr) {
        const int row = cursor.group * p.rows + cursor.row();
        load<S::kParts>(panel, row, 0, p.steps);
        load<1>(panel, row, p.steps, p.steps + p.rest_steps);
        continue;
      }
      const CUtensorMap* weights = p.weights + cursor.group;
      if (cursor.group != known) acquire_map(weights);
      known = cursor.group;
      load<S::kParts>(weights, cursor.row(), 0, p.steps);
    }
  }
};

__device__ __forceinline__ void store_pair(float* out, float first, float second) {
  *reinterpret_cast<float2*>(out) = make_float2(first, second);
}
__device__ __forceinline__ void store_pair(bf16* out, float first, float second) {
  *reinterpret_cast<uint32_t*>(out) = pack_pair(first, second);
}

// A warp's 16 entries from `entry` on, of which those before `end` are there.
template <class T, int Sums>
__device__ __forceinline__ void store_entries(const ExpertArguments& p, const float (&sums)[Sums],
                                              const float* bias, int entry, int end, int row) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int eight = 0; eight < Sums / 4; ++eight) {
    const int column = row + eight * 8 + lane % 4 * 2;
    if (column >= p.rows) return;
    const float first = bias != nullptr ? bias[column] : 0.0f,
                second = bias != nullptr ? bias[column + 1] : 0.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = entry + half * 8 + lane / 4;
      if (at >= end) continue;
      store_pair(static_cast<T*>(p.out) + at * p.out_stride + column, sums[eight * 4 + half * 2] + first,
                 sums[eight * 4 + half * 2 + 1] + second);
    }
  }
}

// A warpgroup that multiplies.
template <class T, class S>
struct ExpertMultiplier {
  const ExpertArguments& p;
  ExpertCursor<S> cursor;
  uint32_t shared;
  int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128;
  int before = -1;  // the stage whose wgmmas may be under way
  float sums[S::kRows / 2];

  __device__ __forceinline__ uint32_t full() const { return shared + S::kBarriers + 8 * cursor.stage; }
  __device__ __forceinline__ void give_back(int stage) const {
    if (thread == 0) barrier_arrive(shared + S::kBarriers + 8 * (S::kStages + stage));
  }
  // `Parts` of the entries with each of the next `steps` stages.
  template <int Parts>
  __device__ __forceinline__ void add(int steps, bool fresh) {
    for (int step = 0; step < steps; ++step) {
      barrier_wait(full(), cursor.round & 1);
      const uint32_t stage = shared + cursor.stage * S::kBytes;
      const uint64_t b = describe_operand(stage + S::kXBytes);
      cute::warpgroup_arrive();
#pragma unroll
      for (int k = 0; k < kDepth / 16; ++k) {
#pragma unroll
        for (int part = 0; part < Parts; ++part) {
          const uint64_t a = describe_operand(stage + part * S::kPartBytes + group * 64 * 128);
          multiply(sums, a + 2 * k, b + 2 * k, !fresh || step != 0 || k != 0 || part != 0 ? 1 : 0);
        }
      }
      cute::warpgroup_commit_batch();
      cute::warpgroup_wait<1>();
      if (before >= 0) give_back(before);
      before = cursor.stage;
      cursor.next_stage();
    }
  }
  // A tile that ends with the other group's entries.
  __device__ __forceinline__ void pass(int steps) {
    for (int step = 0; step < steps; ++step, cursor.next_stage()) {
      barrier_wait(full(), cursor.round & 1);
      give_back(cursor.stage);
    }
  }
  __device__ __forceinline__ void run() {
    for (; cursor.live(); cursor.next_tile()) {
      const int first = cursor.entry(), entry = first + group * 64;
      const int end = min(cursor.begin[cursor.group + 1], first + S::kEntries);
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
      const float* bias = p.biases != nullptr ? p.biases[cursor.group] : p.bias;
      store_entries<T>(p, sums, bias != nullptr ? bias + p.bias_row : nullptr, entry + thread / 32 * 16, end,
                       cursor.row());
    }
  }
};

template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    expert_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap panel,
                  const ExpertArguments p) {
  extern __shared__ uint8_t raw[];
  uint8_t* base = raw + bytes_to_aligned(raw);
  const uint32_t shared = shared_address(base);
  int* begin = reinterpret_cast<int*>(base + S::kBegin);
  if (threadIdx.x == 0) {
    const uint32_t full = shared + S::kBarriers, empty = full + 8 * S::kStages;
    for (int s = 0; s < S::kStages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, S::kGroups);
    }
    barriers_ready();
  }
  allow_dependents();
  wait_for_producer();
  for (int i = threadIdx.x; i <= p.groups; i += S::kThreads)
    begin[i] = p.begin != nullptr ? p.begin[i] : i * p.entries;
  __syncthreads();
  if (threadIdx.x < 128) {
    if constexpr (S::kGroups > 1) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x < 32 && one_lane())
      ExpertLoader<S>{p, &x, &panel, ExpertCursor<S>(p, begin), shared}.run();
  } else {
    if constexpr (S::kGroups > 1) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    ExpertMultiplier<T, S>{p, ExpertCursor<S>(p, begin), shared}.run();
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
  arguments.rows = static_cast<int>(p.shape.rows);
  arguments.bias_row = static_cast<int>(p.bias_row);
  arguments.steps = static_cast<int>(ceil_div(p.shape.cols, kDepth));
  arguments.rest_steps = (p.panel_parts - 1) * arguments.steps;
  arguments.entries = static_cast<int>(p.out.n);
  const CUtensorMap x =
      make_tensor_map(p.x, {2,
                            {static_cast<uint64_t>(p.shape.cols), static_cast<uint64_t>(S::kParts * p.out.n)},
                            {static_cast<uint64_t>(p.shape.cols) * 2},
                            {kDepth, S::kEntries}});
  const auto width = static_cast<uint64_t>(p.panel_parts * arguments.steps * kDepth);
  const CUtensorMap panel =
      p.panel == nullptr ? CUtensorMap{}
                         : make_tensor_map(p.panel, {2,
                                                     {width, static_cast<uint64_t>(p.groups * p.shape.rows)},
                                                     {width * 2},
                                                     {kDepth, kBoxRows}});
  const Grid grid{dim3(static_cast<unsigned>(processors)), dim3(S::kThreads), S::kShared};
  launch("grouped GEMM", expert_kernel<T, S>, grid, stream, x, panel, arguments);
}

}  // namespace

bool experts_fit(const Matrix& shape, int64_t groups, int64_t entries) {
  return shape.cols % 8 == 0 && shape.rows % 2 == 0 && shape.row_bytes % 16 == 0 && shape.rows < (1 << 30) &&
         groups <= kMaxExperts && entries < (1 << 29);
}

static_assert(sizeof(CUtensorMap) == kExpertMapBytes);
void write_expert_map(std::byte* out, const Matrix& matrix) {
  const CUtensorMap map =
      make_tensor_map(matrix.data, {2,
                                    {static_cast<uint64_t>(matrix.cols), static_cast<uint64_t>(matrix.rows)},
                                    {static_cast<uint64_t>(matrix.row_bytes)},
                                    {kDepth, kBoxRows}});
  std::memcpy(out, &map, sizeof map);
}

void launch_grouped_gemm_sm90(const GroupedGemmSm90Params& p, Stream stream) {
  const bool many = p.out.n >= kManyEntries * p.groups;
  if (p.out.type == DType::F32)
    return many ? launch_shape<float, ExpertShape<2, 128, 256>>(p, stream)
                : launch_shape<float, ExpertShape<2, 16, 64>>(p, stream);
  many ? launch_shape<bf16, ExpertShape<1, 128, 256>>(p, stream)
       : launch_shape<bf16, ExpertShape<1, 16, 64>>(p, stream);
}

}  // namespace sluice::kernels::cuda

// GEMMs of entries with the matrices of experts on Hopper's warpgroup instructions: out[e, :] = x[e, :] · W_gᵀ + bias_g
// for the entries e of each group g, which lie in a row. Matrices are bf16, each where it is, or panels of decoded ones.
//
// A tile is entries of one group x weight rows: 128 x 256, two warpgroups with 64 entries each, m64n256k16, where the
// operations are the limit; 16 or 32 x 64 where reading the matrices is. Sums are in registers. One thread of a further warpgroup
// fills a ring of stages of 64 columns with the TMA unit. How many entries a group has is known on the device
// only, so the blocks, one for each multiprocessor, walk over the tiles by themselves: tiles of a group one after the other,
// those with the same rows together, so that the L2 holds what they share.
//
// Gated (Silu): half of a tile's rows are of the gate, the other half those of the up matrix that go with them, so that a thread has
// both sums and stores one number for them.
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
// Of an expert in the mean: from here on tiles have twice as many entries, and are large.
constexpr int64_t kSomeEntries = 6, kManyEntries = 24;

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
  static constexpr int kBeginBytes = (kMaxExperts + 1) * 4;
  static constexpr int kStages = (kSharedLimit - 1024 - kBeginBytes - 256) / kBytes;
  static constexpr int kBarriers = kStages * kBytes, kBegin = kBarriers + 2 * kStages * 8;
  static constexpr int kShared = kBegin + kBeginBytes + 1024;
  static_assert(kColumns % kBoxRows == 0);
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
  int groups, rows, bias_row;  // rows: columns of the result; bias_row: of the matrices' first
  int steps, rest_steps;       // of kDepth columns; rest_steps: those of the panel's second part
  int entries;                 // rows of x from an entry's first part to its second
  int x_group;                 // by head: columns of x from a group's first to the next one's; else 0
  int64_t out_group;           // by head: the same of the result
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
      : begin(starts), row_tiles((p.rows + S::kColumns - 1) / S::kColumns), groups(p.groups) {
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
  __device__ __forceinline__ int row() const { return (tile - first) / entry_tiles() * S::kColumns; }
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
    const int entry = cursor.entry() - (p.x_group > 0 ? cursor.begin[cursor.group] : 0);
    const int column = p.x_group * cursor.group;
    for (int step = from; step < to; ++step) {
      if (cursor.round > 0) barrier_wait(empty + 8 * cursor.stage, (cursor.round - 1) & 1);
      const uint32_t barrier = full + 8 * cursor.stage, at = shared + cursor.stage * S::kBytes;
      barrier_expect(barrier, S::kBytes - (S::kParts - Parts) * S::kPartBytes);
#pragma unroll
      for (int part = 0; part < Parts; ++part)
        tma_load_2d(at + part * S::kPartBytes, x, column + (step - from) * kDepth, part * p.entries + entry,
                    barrier);
#pragma unroll
      for (int box = 0; box < S::kRows; box += kBoxRows)
        tma_load_2d(at + S::kXBytes + box * 128, weights, step * kDepth,
                    S::kGated && box >= S::kColumns ? p.rows + row + box - S::kColumns : row + box, barrier);
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
      T* out = static_cast<T*>(p.out);
      if (p.x_group > 0)
        out += cursor.group * p.out_group - int64_t{cursor.begin[cursor.group]} * p.out_stride;
      store_entries<T, S>(p, out, sums, bias != nullptr ? bias + p.bias_row : nullptr,
                          entry + thread / 32 * 16, end, cursor.row());
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
  arguments.rows = static_cast<int>(S::kGated ? p.shape.rows / 2 : p.shape.rows);
  arguments.bias_row = static_cast<int>(p.bias_row);
  arguments.steps = static_cast<int>(ceil_div(p.shape.cols, kDepth));
  arguments.rest_steps = (p.panel_parts - 1) * arguments.steps;
  arguments.entries = static_cast<int>(p.out.n);
  arguments.x_group = static_cast<int>(p.x_group);
  arguments.out_group = p.out_group;
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
  const int64_t mean = p.x_group > 0 ? p.out.n : p.out.n / p.groups;
  const bool many = mean >= kManyEntries, some = mean >= kSomeEntries;
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

// GEMMs whose sums do not depend on the number of tokens: out[n, rows] = x[n, cols] · Wᵀ of bf16 operands. Every element is one chain of k16 steps over all columns, first to last, in the tensor cores' f32
// sums. That is the order of any wgmma kernel that does not split the columns, so gemm_swiglu_sm90.cu and algorithms of
// cuBLASLt (cublaslt_gemm.h checks which) take over where there are more tokens than 32.
//
// One persistent block per multiprocessor walks over tiles of 16 to 64 weight rows. They are the 64-row operand of
// m64nNk16, tokens the other one; rows that a smaller tile does not have are whatever lies behind it in shared memory,
// and their results are dropped. A producer warp keeps a ring of stages of four times 64 columns full with the TMA unit,
// the weights before the kernel in front has ended.
//
// Bytes: the weights once, and x from the L2 once for each tile.
#include <array>

#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/gemm/gemm_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kFixedDepth = 4;  // blocks of 64 columns of a stage
constexpr int kFixedThreads = 160;

template <int Tokens_, int Rows_>
struct FixedShape {
  static constexpr int Tokens = Tokens_, Rows = Rows_;
  static constexpr int kWeightBytes = kFixedDepth * Rows * 128;
  static constexpr int kStageBytes = kWeightBytes + kFixedDepth * Tokens * 128;
  // An operand reads 64 rows from its first on.
  static constexpr int kBehind = (64 - Rows) * 128;
  static constexpr int kLimit = 232448 - 1024 - 256 - kBehind;
  static constexpr int kStages = kLimit / kStageBytes < 12 ? kLimit / kStageBytes : 12;
  static constexpr int kBarriers = kStages * kStageBytes + kBehind;
  static constexpr int kShared = kBarriers + 2 * kStages * 8 + 1024;
  static_assert(kStages >= 3 && kStageBytes % 1024 == 0);
};

struct FixedArguments {
  bf16* out;
  int64_t out_stride;
  int n, rows, steps;  // steps: stages of a tile
};

template <class S>
__device__ __forceinline__ void fill_ring(const FixedArguments& p, const CUtensorMap* weights,
                                          const CUtensorMap* x, uint32_t shared, int mine) {
  const uint32_t full = shared + S::kBarriers, empty = full + 8 * S::kStages;
  const uint64_t policy = read_once_policy();
  const int total = mine * p.steps, ahead = total < S::kStages ? total : S::kStages;
  const auto load_weights = [&](int i) {
    const int s = i % S::kStages, tile = static_cast<int>(blockIdx.x + i / p.steps * gridDim.x);
    const uint32_t to = shared + s * S::kStageBytes;
    barrier_expect(full + 8 * s, S::kStageBytes);
    tma_load_3d(to, weights, 0, tile * S::Rows, i % p.steps * kFixedDepth, full + 8 * s, policy);
  };
  const auto load_x = [&](int i) {
    const int s = i % S::kStages;
    tma_load_3d(shared + s * S::kStageBytes + S::kWeightBytes, x, 0, 0, i % p.steps * kFixedDepth,
                full + 8 * s);
  };
  for (int i = 0; i < ahead; ++i) load_weights(i);
  wait_for_producer();
  for (int i = 0; i < ahead; ++i) load_x(i);
  for (int i = S::kStages; i < total; ++i) {
    barrier_wait(empty + 8 * (i % S::kStages), (i / S::kStages - 1) & 1);
    load_weights(i);
    load_x(i);
  }
}

template <class S>
__device__ __forceinline__ void store_tile(const FixedArguments& p, const float (&sums)[S::Tokens / 2],
                                           int first_row) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3;
  if (warp * 16 >= S::Rows) return;
#pragma unroll
  for (int i = 0; i < S::Tokens / 2; ++i) {
    const int row = first_row + warp * 16 + g + (i & 2) * 4, token = i / 4 * 8 + 2 * t + (i & 1);
    if (row >= p.rows || token >= p.n) continue;
    p.out[token * p.out_stride + row] = __float2bfloat16(sums[i]);
  }
}

template <class S>
__device__ __forceinline__ void multiply_ring(const FixedArguments& p, uint32_t shared, int mine) {
  const uint32_t full = shared + S::kBarriers, empty = full + 8 * S::kStages;
  float sums[S::Tokens / 2];
  int stage = 0, before = 0;
  uint32_t parity = 0;
  const auto give_back = [&](int read) {
    if (threadIdx.x == 0) barrier_arrive(empty + 8 * read);
  };
  for (int j = 0; j < mine; ++j) {
    for (int step = 0; step < p.steps; ++step) {
      barrier_wait(full + 8 * stage, parity);
      const uint32_t at = shared + stage * S::kStageBytes;
      const uint64_t a = describe_operand(at), b = describe_operand(at + S::kWeightBytes);
      cute::warpgroup_arrive();
#pragma unroll
      for (int block = 0; block < kFixedDepth; ++block)
#pragma unroll
        for (int k = 0; k < 4; ++k)
          multiply(sums, a + block * S::Rows * 8 + 2 * k, b + block * S::Tokens * 8 + 2 * k,
                   step != 0 || block != 0 || k != 0 ? 1 : 0);
      cute::warpgroup_commit_batch();
      cute::warpgroup_wait<1>();
      if (step > 0) give_back(before);
      before = stage;
      if (++stage == S::kStages) stage = 0, parity ^= 1u;
    }
    cute::warpgroup_wait<0>();
#pragma unroll
    for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");  // not to be read before the wait
    give_back(before);
    store_tile<S>(p, sums, static_cast<int>(blockIdx.x + j * gridDim.x) * S::Rows);
  }
}

template <class S>
__global__ void __launch_bounds__(kFixedThreads, 1)
    gemm_fixed_kernel(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap x,
                      const FixedArguments p) {
  require_hopper();
  extern __shared__ uint8_t raw[];
  const uint32_t shared = shared_address(raw) + bytes_to_aligned(raw);
  const int tiles = (p.rows + S::Rows - 1) / S::Rows, blocks = static_cast<int>(gridDim.x);
  const int mine = (tiles - static_cast<int>(blockIdx.x) + blocks - 1) / blocks;
  if (threadIdx.x == 0) {
    for (int s = 0; s < S::kStages; ++s) {
      barrier_init(shared + S::kBarriers + 8 * s, 1);
      barrier_init(shared + S::kBarriers + 8 * (S::kStages + s), 1);
    }
    barriers_ready();
  }
  allow_dependents();
  __syncthreads();
  if (threadIdx.x >= 128) {
    if (one_lane()) fill_ring<S>(p, &weights, &x, shared, mine);
  } else {
    multiply_ring<S>(p, shared, mine);
  }
}

// A matrix [rows, cols] seen as [cols / 64, rows, 64], read in boxes of [kFixedDepth, box_rows, 64]; zero outside.
CUtensorMap fixed_map(const void* data, int64_t rows, int64_t cols, int64_t row_bytes, int box_rows) {
  return make_tensor_map(data, {3,
                                {64, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols / 64)},
                                {static_cast<uint64_t>(row_bytes), 128},
                                {64, static_cast<uint32_t>(box_rows), kFixedDepth}});
}

template <class S>
void launch_fixed_shape(const GemmParams& p, Stream stream) {
  static const int processors = multiprocessors();
  static const cudaError_t attribute =
      cudaFuncSetAttribute(gemm_fixed_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kShared);
  check_launch(attribute, "gemm_fixed");
  const CUtensorMap weights =
      fixed_map(p.weight.data, p.weight.rows, p.weight.cols, p.weight.row_bytes, S::Rows);
  const CUtensorMap x = fixed_map(p.x.data, p.x.n, p.weight.cols, p.x.stride_n * 2, S::Tokens);
  FixedArguments arguments{};
  arguments.out = static_cast<bf16*>(p.out.data);
  arguments.out_stride = p.out.stride_n;
  arguments.n = static_cast<int>(p.x.n);
  arguments.rows = static_cast<int>(p.weight.rows);
  arguments.steps = static_cast<int>(ceil_div(p.weight.cols, 64 * kFixedDepth));
  const int64_t tiles = ceil_div(arguments.rows, S::Rows);
  const Grid grid{dim3(static_cast<unsigned>(tiles < processors ? tiles : processors)), dim3(kFixedThreads),
                  S::kShared};
  launch("gemm_fixed", gemm_fixed_kernel<S>, grid, stream, weights, x, arguments);
}

template <int Rows>
void launch_fixed_rows(const GemmParams& p, Stream stream) {
  if (p.x.n <= 8) return launch_fixed_shape<FixedShape<8, Rows>>(p, stream);
  if (p.x.n <= 16) return launch_fixed_shape<FixedShape<16, Rows>>(p, stream);
  launch_fixed_shape<FixedShape<32, Rows>>(p, stream);
}

struct FixedKind {
  int rows;
  void (*launch)(const GemmParams&, Stream);
};

constexpr std::array<FixedKind, 4> kFixedKinds{FixedKind{16, launch_fixed_rows<16>},
                                               {32, launch_fixed_rows<32>},
                                               {48, launch_fixed_rows<48>},
                                               {64, launch_fixed_rows<64>}};

// The most rows with which the busiest block has at most a twentieth more to do than with the best.
const FixedKind& choose_rows(int64_t rows) {
  static const int processors = multiprocessors();
  const auto cost = [&](const FixedKind& k) { return ceil_div(ceil_div(rows, k.rows), processors) * k.rows; };
  int64_t least = cost(kFixedKinds[0]);
  for (const FixedKind& kind : kFixedKinds) least = cost(kind) < least ? cost(kind) : least;
  const FixedKind* best = nullptr;
  for (const FixedKind& kind : kFixedKinds)
    if (20 * cost(kind) <= 21 * least) best = &kind;
  return *best;
}

}  // namespace

bool gemm_fixed_fits(const GemmParams& p) {
  return p.weight.type == DType::BF16 && p.x.type == DType::BF16 && p.out.type == DType::BF16 &&
         p.weight.cols % 64 == 0 && aligned16(p.weight.data) && aligned16(p.x.data) &&
         p.weight.row_bytes % 16 == 0 && p.x.stride_n % 8 == 0 && p.weight.rows < (1 << 30) &&
         (p.x.n == 1 || p.x.stride_n >= p.weight.cols);
}

void launch_gemm_fixed(const GemmParams& p, Stream stream) {
  choose_rows(p.weight.rows).launch(p, stream);
}

}  // namespace sluice::kernels::cuda

// GEMMs of few tokens, out[n, rows] = x[n, cols] · Wᵀ + bias, n ≤ 8.
//
// bf16 and scaled fp8, one token: a warp per weight row, eight 16-byte loads in flight; weights are on their way before
// the kernel in front has ended, x goes to shared memory after. Reads the weights once: 53.7 us for 28672 x 4096 in bf16
// on an H200, 4.38 TB/s (H200 read ceiling for one launch of that size: 4.41). Packed types, one to eight
// tokens: a warp per weight row, a lane decodes eight elements and multiplies them with every token's, which
// come from the L1; so do f32 tokens with any type.
#include <type_traits>

#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/common/dequantize.cuh"
#include "kernels/cuda/gemm/gemv_input.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kUnroll = 8;
constexpr int64_t kMaxShared = 96 * 1024;
constexpr int kMostHeld = 2;  // pieces of x that a thread norms

// How 16 bytes of a weight row become numbers.
struct Bf16Pieces {
  static constexpr int kElements = 8, kHeader = 0;
  __device__ static void unpack(uint4 v, float (&f)[8]) { unpack8(v, f); }
  __device__ static float scale(const Matrix&, int64_t) { return 1.0f; }
};
struct Fp8Pieces {
  static constexpr int kElements = 16, kHeader = static_cast<int>(kFp8Header);
  __device__ static void unpack(uint4 v, float (&f)[16]) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 both = __half22float2(fp8_to_halves(static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16))));
      f[2 * i] = both.x, f[2 * i + 1] = both.y;
    }
  }
  __device__ static float scale(const Matrix& matrix, int64_t row) {
    return __ldg(matrix.scales + row);
  }
};

// The first Unroll * 32 pieces of 16 bytes of each of a warp's rows; Whole: the row is a multiple of that.
template <class Pieces, int Rows, int Unroll, bool Whole>
struct RowReader {
  const uint4* rows[Rows];
  uint4 held[Rows][Unroll];
  int pieces;

  __device__ __forceinline__ void load(int r, int u, int piece) {
    held[r][u] = Whole || piece < pieces ? load_weight(rows[r] + piece) : make_uint4(0, 0, 0, 0);
  }
  __device__ __forceinline__ void load_first(int lane) {
#pragma unroll
    for (int u = 0; u < Unroll; ++u)
#pragma unroll
      for (int r = 0; r < Rows; ++r) load(r, u, u * 32 + lane);
  }
  // Sums of products with x, in the lanes' shares.
  __device__ __forceinline__ void multiply(const uint4* x, int lane, float (&sums)[Rows]) {
    constexpr int kEach = Pieces::kElements / 8;  // pieces of x to a piece of weights
    for (int base = 0; base < pieces; base += Unroll * 32) {
      const bool more = base + Unroll * 32 < pieces;
#pragma unroll
      for (int u = 0; u < Unroll; ++u) {
        const int piece = base + u * 32 + lane;
        float b[Pieces::kElements];
#pragma unroll
        for (int e = 0; e < kEach; ++e)
          unpack8(Whole || piece < pieces ? x[piece * kEach + e] : make_uint4(0, 0, 0, 0), b + 8 * e);
#pragma unroll
        for (int r = 0; r < Rows; ++r) {
          float a[Pieces::kElements];
          Pieces::unpack(held[r][u], a);
#pragma unroll
          for (int j = 0; j < Pieces::kElements; ++j) sums[r] += a[j] * b[j];
          if (more) load(r, u, piece + Unroll * 32);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < Rows; ++r) sums[r] = warp_sum(sums[r]);
  }
};

template <class Pieces>
__device__ __forceinline__ const uint4* row_of(const Matrix& matrix, int64_t row) {
  return reinterpret_cast<const uint4*>(static_cast<const char*>(matrix.data) + row * matrix.row_bytes +
                                        Pieces::kHeader);
}

// Split warps share a row: each has a part of its columns.
template <class Pieces, int Rows, int Unroll, bool Whole, int Split, int Held>
__global__ void __launch_bounds__(kWarps * 32) plain_kernel(const GemmParams p) {
  static_assert(Rows == 1 || Split == 1);
  extern __shared__ uint4 x_shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % Split;
  const int64_t wanted = (int64_t{blockIdx.x} * kWarps + warp) / Split * Rows;
  RowReader<Pieces, Rows, Unroll, Whole> reader;
  const int all = static_cast<int>(p.weight.cols / Pieces::kElements), each = (all + Split - 1) / Split;
  const int first = part * each;
  reader.pieces = min(each, all - first);
  float scales[Rows];
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    const int64_t row = wanted + r < p.weight.rows ? wanted + r : p.weight.rows - 1;
    reader.rows[r] = row_of<Pieces>(p.weight, row) + first;
    scales[r] = Pieces::scale(p.weight, row);
  }
  reader.load_first(lane);
  const InputNorms<Held, kWarps> norms(p);
  allow_dependents();
  wait_for_producer();
  norms.share(x_shared, p);
  float sums[Rows] = {};
  reader.multiply(x_shared + first * (Pieces::kElements / 8), lane, sums);
  if constexpr (Split > 1) {
    __shared__ float parts[kWarps];
    if (lane == 0) parts[warp] = sums[0];
    __syncthreads();
    if (part != 0) return;
    sums[0] = 0.0f;
#pragma unroll
    for (int s = 0; s < Split; ++s) sums[0] += parts[warp + s];
  }
  if (lane != 0) return;
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    const int64_t row = wanted + r;
    if (row >= p.weight.rows) break;
    bf16* out = static_cast<bf16*>(p.out.data) + row;
    const float sum = sums[r] * scales[r] + (p.bias != nullptr ? p.bias[row] : 0.0f);
    *out = __float2bfloat16(p.added != 0 ? widen(*out) + sum : sum);
  }
}

// A warp makes one element of the result: a gate row and the up row that belongs to it.
template <class Pieces, bool Whole, int Held>
__global__ void __launch_bounds__(kWarps * 32) gated_kernel(const GatedGemmParams g) {
  extern __shared__ uint4 x_shared[];
  const GemmParams& p = g.gemm;
  const int lane = threadIdx.x % 32;
  const int64_t inner = p.weight.rows / 2, wanted = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int64_t row = wanted < inner ? wanted : inner - 1;
  RowReader<Pieces, 2, kUnroll / 2, Whole> reader;
  reader.pieces = static_cast<int>(p.weight.cols / Pieces::kElements);
  reader.rows[0] = row_of<Pieces>(p.weight, row);
  reader.rows[1] = row_of<Pieces>(p.weight, inner + row);
  reader.load_first(lane);
  const float scales[2] = {Pieces::scale(p.weight, row), Pieces::scale(p.weight, inner + row)};
  const InputNorms<Held, kWarps> norms(p);
  allow_dependents();
  wait_for_producer();
  norms.share(x_shared, p);
  float sums[2] = {};
  reader.multiply(x_shared, lane, sums);
  if (lane != 0) return;
  sums[0] *= scales[0], sums[1] *= scales[1];
  if (p.bias != nullptr) sums[0] += p.bias[row], sums[1] += p.bias[inner + row];
  static_cast<bf16*>(p.out.data)[row] = __float2bfloat16(gate(sums[0], sums[1], g.activation));
}

template <class Type, class T, int Tokens>
__global__ void __launch_bounds__(kWarps * 32) packed_kernel(const GemmParams p) {
  allow_dependents();
  wait_for_producer();
  const int lane = threadIdx.x % 32;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= p.weight.rows) return;
  const uint8_t* weights = static_cast<const uint8_t*>(p.weight.data) + row * p.weight.row_bytes;
  const T* x = static_cast<const T*>(p.x.data);
  const int64_t cols = p.weight.cols;
  float acc[Tokens];
#pragma unroll
  for (int t = 0; t < Tokens; ++t) acc[t] = 0.0f;
#pragma unroll 2
  for (int64_t k = lane * 8; k < cols; k += 256) {
    float w[8];
    Type::dequantize8(weights, k, w);
#pragma unroll
    for (int t = 0; t < Tokens; ++t) {
      if (t >= p.x.n) break;
      float v[8];
      load8<true>(x + t * p.x.stride_n + k, 8, v);
#pragma unroll
      for (int j = 0; j < 8; ++j) acc[t] += w[j] * v[j];
    }
  }
#pragma unroll
  for (int t = 0; t < Tokens; ++t) {
    const float total = warp_sum(acc[t]);
    if (lane == 0 && t < p.x.n)
      static_cast<T*>(p.out.data)[t * p.out.stride_n + row] =
          narrow<T>(total + (p.bias != nullptr ? p.bias[row] : 0.0f));
  }
}

}  // namespace

static bool is_plain(const GemmParams& p) {
  return p.weight.type == DType::BF16 && p.x.type == DType::BF16;
}
static bool is_scaled(const GemmParams& p) {
  return p.weight.scales != nullptr && p.x.type == DType::BF16;
}

bool gemv_fits(const GemmParams& p) {
  const bool aligned = aligned16(p.x.data) && p.x.stride_n % 8 == 0 && p.weight.cols % 8 == 0;
  const bool one = p.x.n == 1 && p.weight.row_bytes % 16 == 0 && p.weight.cols * 2 <= kMaxShared;
  if (is_plain(p)) return aligned && one;
  if (is_scaled(p)) return aligned && one && p.weight.cols % 16 == 0;
  return aligned && p.x.n <= 8;
}

bool gemv_adds(const GemmParams& p) {
  return (is_plain(p) || is_scaled(p)) && gemv_fits(p);
}

bool gemv_norms(const GemmParams& p) {
  // Every block norms x for itself, hidden behind the weights of its neighbours; not in those of a vocabulary.
  constexpr int64_t kBlocks = 16;
  static const int processors = multiprocessors();
  const bool at_once = p.weight.cols <= kMostHeld * kWarps * 32 * 8;
  return gemv_adds(p) && at_once && p.weight.cols == p.x.dim &&
         p.weight.rows <= kBlocks * processors * 2 * kWarps;
}

bool gemv_at_once(const GemmParams& p) {
  constexpr int kBlocks = 4;  // on a multiprocessor, by their registers
  static const int processors = multiprocessors();
  return p.weight.rows <= int64_t{processors} * kBlocks * kWarps &&
         p.weight.row_bytes <= 2 * kUnroll * 32 * 16 + kFp8Header;
}

namespace {

template <class Params>
void launch_shared(void (*kernel)(Params), const Params& p, int64_t cols, int64_t warps, Stream stream) {
  const auto shared = static_cast<size_t>(cols * 2);
  if (shared > 48 * 1024) {
    check_launch(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxShared),
                 "gemv of this width");
  }
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(warps, kWarps))), dim3(kWarps * 32), shared};
  launch("gemv", kernel, grid, stream, p);
}

// Whether a warp with this many loads in flight reads a row in whole rounds.
template <class Pieces>
bool whole(int64_t cols, int unroll) {
  return cols % (unroll * 32 * Pieces::kElements) == 0;
}

// Calls visit with the number of pieces that a thread norms.
template <class Visit>
void visit_held(const GemmParams& p, const Visit& visit) {
  if (p.norm.out == nullptr) return visit(std::integral_constant<int, 0>{});
  if (p.weight.cols <= kWarps * 32 * 8) return visit(std::integral_constant<int, 1>{});
  visit(std::integral_constant<int, kMostHeld>{});
}

template <class Pieces, int Rows>
void launch_plain(const GemmParams& p, Stream stream) {
  constexpr int kEach = kUnroll / Rows;
  const int64_t cols = p.weight.cols;
  visit_held(p, [&](auto held) {
    constexpr int kHeld = decltype(held)::value;
    const auto kernel = whole<Pieces>(cols, kEach) ? plain_kernel<Pieces, Rows, kEach, true, 1, kHeld>
                                                   : plain_kernel<Pieces, Rows, kEach, false, 1, kHeld>;
    launch_shared(kernel, p, cols, ceil_div(p.weight.rows, Rows), stream);
  });
}

// Few rows: Split warps to a row, each with Unroll rounds of it, so that all of the matrix can be on its way at a time.
template <int Split, int Unroll>
bool launch_parts(const GemmParams& p, Stream stream) {
  const int64_t cols = p.weight.cols;
  if (cols != Split * Unroll * 32 * Bf16Pieces::kElements) return false;
  visit_held(p, [&](auto held) {
    launch_shared(plain_kernel<Bf16Pieces, 1, Unroll, true, Split, decltype(held)::value>, p, cols,
                  p.weight.rows * Split, stream);
  });
  return true;
}

// Whether the rows were few and of a width that this is made for.
bool launch_few_rows(const GemmParams& p, Stream stream) {
  static const int64_t warps = int64_t{multiprocessors()} * 4 * kWarps;
  const bool four = p.weight.rows * 4 <= warps, two = p.weight.rows * 2 <= warps;
  if (four &&
      (launch_parts<4, 2>(p, stream) || launch_parts<4, 3>(p, stream) || launch_parts<4, 4>(p, stream)))
    return true;
  if (four && (launch_parts<4, 6>(p, stream) || launch_parts<4, 8>(p, stream))) return true;
  return two && (launch_parts<2, 3>(p, stream) || launch_parts<2, 4>(p, stream) ||
                 launch_parts<2, 6>(p, stream) || launch_parts<2, 8>(p, stream));
}

template <class Pieces>
void launch_gated(const GatedGemmParams& p, Stream stream) {
  const int64_t cols = p.gemm.weight.cols;
  const bool rounds = whole<Pieces>(cols, kUnroll / 2);
  visit_held(p.gemm, [&](auto held) {
    constexpr int kHeld = decltype(held)::value;
    launch_shared(rounds ? gated_kernel<Pieces, true, kHeld> : gated_kernel<Pieces, false, kHeld>, p, cols,
                  p.gemm.weight.rows / 2, stream);
  });
}

}  // namespace

void launch_gemv_gated(const GatedGemmParams& p, Stream stream) {
  if (p.gemm.weight.scales != nullptr) return launch_gated<Fp8Pieces>(p, stream);
  launch_gated<Bf16Pieces>(p, stream);
}

void launch_gemv(const GemmParams& p, Stream stream) {
  // Two rows to a warp: 4.55 instead of 4.44 TB/s where there are very many, less where there are few.
  if (is_plain(p) && p.weight.rows >= kLongMatrix) return launch_plain<Bf16Pieces, 2>(p, stream);
  if (is_plain(p) && launch_few_rows(p, stream)) return;
  if (is_plain(p)) return launch_plain<Bf16Pieces, 1>(p, stream);
  if (is_scaled(p)) return launch_plain<Fp8Pieces, 1>(p, stream);
  const dim3 blocks(static_cast<unsigned>(ceil_div(p.weight.rows, kWarps)));
  const bool known = visit_matrix(p.weight, [&](auto type) {
    using Type = decltype(type);
    visit_activations(p.x.type, [&](auto element) {
      using T = decltype(element);
      const Grid grid{blocks, dim3(kWarps * 32)};
      if (p.x.n == 1) return launch("gemv", packed_kernel<Type, T, 1>, grid, stream, p);
      if (p.x.n <= 4) return launch("gemv", packed_kernel<Type, T, 4>, grid, stream, p);
      launch("gemv", packed_kernel<Type, T, 8>, grid, stream, p);
    });
  });
  check_launch(known ? cudaSuccess : cudaErrorInvalidValue, "gemv of this type");
}

}  // namespace sluice::kernels::cuda

// The gated delta rule in chunks, first kernel: what of a chunk does not depend on the state (formulas: delta_chunk.cuh).
//
// A block has one chunk of up to 64 tokens of one value head. Of the products of queries and keys a warp has 16 rows; of
// T = (I + A)⁻¹, by blocks of 16, warp w has the inverse of diagonal block w, a column for each lane, and then column w of
// blocks, from the diagonal down, as the transposed blocks in registers; of W and U it has 32 columns. Rows beyond the
// chunk are zeros. Bytes of a token and head of 128 x 128: q, k and v read, 768, W, U and 64 scores written, 640.
#include "kernels/cuda/recurrent/delta_chunk.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = 4, kSolveThreads = 32 * kWarps;
constexpr int kValues = 128;  // columns of values in shared memory
constexpr int kInversePitch = 24, kDiagonalPitch = 20;

struct SolveTile {
  bf16 k[kChunk][kKeyPitch], v[kChunk][kValues + 8];
  union {
    bf16 q[kChunk][kKeyPitch];
    struct {
      // T with the factors of W's and of U's sums; no block above the diagonal is written.
      bf16 w[kChunk][kTokenPitch], u[kChunk][kTokenPitch];
    } t;
  };
  bf16 coupling[kChunk][kTokenPitch];          // -A, blocks below the diagonal ones
  bf16 inverse[kWarps][16][kInversePitch];     // of diagonal blocks
  float diagonal[kWarps][16][kDiagonalPitch];  // A's, transposed
  // Sums of log decays, base 2, and factors of tokens.
  float g[kChunk], beta[kChunk], q_scale[kChunk], k_scale[kChunk], w_factor[kChunk];
};

constexpr float kLogOfE = 1.44269504088896340736f;
constexpr float kNever = -1e30f;  // two to that power is zero

__device__ __forceinline__ float exp_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

struct SolvePlace {
  int64_t row;  // of the step
  int count, head;
  // Not the warp's place in the block but turned by the head, so that the longest rows of all blocks of a multiprocessor
  // are not one scheduler's.
  int warp;
  int lane;
};

// Sums of log decays, base 2, and betas: one warp. Tokens that are missing have neither.
__device__ __forceinline__ void load_gates(const DeltaParams& p, SolveTile& s, const SolvePlace& at) {
  if (at.warp != 0) return;
  float sum = 0.0f;
#pragma unroll
  for (int half = 0; half < kChunk; half += 32) {
    const int t = half + at.lane;
    float g = t < at.count ? kLogOfE * log_decay_of<bf16>(p, at.row + t, at.head, at.head) : 0.0f;
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
      const float before = __shfl_up_sync(0xffffffffu, g, o);
      if (at.lane >= o) g += before;
    }
    s.g[t] = g += sum;
    s.beta[t] = t < at.count ? beta_of<bf16>(p, at.row + t, at.head) : 0.0f;
    sum = __shfl_sync(0xffffffffu, g, 31);
  }
}

// What makes a token's q and k unit vectors, q times key_dim^-1/2: a thread for each of both.
__device__ __forceinline__ void measure(const DeltaParams& p, SolveTile& s, const SolvePlace& at) {
  const int t = static_cast<int>(threadIdx.x) % kChunk;
  const bool query = static_cast<int>(threadIdx.x) < kChunk;
  const bf16* const row = query ? s.q[t] : s.k[t];
  float square = 0.0f;
#pragma unroll 4
  for (int i = 0; i < kKeys; i += 8) {
    float x[8];
    unpack8(*reinterpret_cast<const uint4*>(row + i), x);
#pragma unroll
    for (int j = 0; j < 8; ++j) square = fmaf(x[j], x[j], square);
  }
  float scale = t < at.count ? 1.0f / sqrtf(square + p.length_eps) : 0.0f;
  if (query) scale *= rsqrtf(static_cast<float>(p.key_dim));
  (query ? s.q_scale : s.k_scale)[t] = scale;
}

// The factors of rows that the second kernel needs, and those of W's sums.
__device__ __forceinline__ void store_factors(const DeltaParams& p, SolveTile& s, const SolvePlace& at) {
  const int t = static_cast<int>(threadIdx.x);
  if (t >= kChunk) return;
  const float g = s.g[t], last = s.g[kChunk - 1], up = exp_of_two(g);
  s.w_factor[t] = -s.beta[t] * up * s.k_scale[t];
  if (t >= at.count) return;
  const ChunkRows rows = chunk_rows(p, at.head);
  const int64_t row = rows.first + at.row + t;
  rows.up[row] = up * s.q_scale[t];
  rows.down[row] = exp_of_two(last - g) * s.k_scale[t];
  if (t == 0) rows.decay[row] = exp_of_two(last);
}

// 16 rows by 32 columns of sums, of which lane 4g + t gives eight columns of two rows to put(row, column, both's numbers).
template <class Put>
__device__ __forceinline__ void put_rows(const float (*c)[4], int lane, const Put& put) {
  const int g = lane / 4, t = lane % 4;
  uint32_t upper[4], lower[4];
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    upper[n] = pack_pair(c[n][0], c[n][1]);
    lower[n] = pack_pair(c[n][2], c[n][3]);
  }
  transpose_four(upper, t);
  transpose_four(lower, t);
  put(g, 8 * t, make_uint4(upper[0], upper[1], upper[2], upper[3]));
  put(g + 8, 8 * t, make_uint4(lower[0], lower[1], lower[2], lower[3]));
}

// The warp's 16 rows of A and of the scores.
__device__ __forceinline__ void couple(const DeltaParams& p, SolveTile& s, const SolvePlace& at) {
  const int warp = at.warp, g = at.lane / 4, t = at.lane % 4;
  float keys[8][4] = {}, scores[8][4] = {};
#pragma unroll
  for (int k = 0; k < kKeys; k += 16) {
    Fragment key, query;
    load_first(s.k, 16 * warp, k, key);
    load_first(s.q, 16 * warp, k, query);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      if (pair > warp) break;
      Fragment b;
      load_second_rows(s.k, k, 16 * pair, b);
      multiply(keys + 2 * pair, key, b);
      multiply(scores + 2 * pair, query, b);
    }
  }
  float until[2], q_scale[2], beta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = 16 * warp + g + 8 * half;
    until[half] = s.g[i], q_scale[half] = s.q_scale[i], beta[half] = s.beta[i] * s.k_scale[i];
  }
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    if (n / 2 > warp) break;
    const int j = 8 * n + 2 * t;
    const float2 since = *reinterpret_cast<const float2*>(&s.g[j]),
                 k_scale = *reinterpret_cast<const float2*>(&s.k_scale[j]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = g + 8 * half, i = 16 * warp + r;
      const float first = k_scale.x * exp_of_two(j <= i ? until[half] - since.x : kNever),
                  second = k_scale.y * exp_of_two(j + 1 <= i ? until[half] - since.y : kNever);
      float* const score = scores[n] + 2 * half;
      score[0] *= q_scale[half] * first, score[1] *= q_scale[half] * second;
      const float left = keys[n][2 * half] * (j < i ? beta[half] * first : 0.0f),
                  right = keys[n][2 * half + 1] * (j + 1 < i ? beta[half] * second : 0.0f);
      if (n / 2 == warp) {
        s.diagonal[warp][j % 16][r] = left;
        s.diagonal[warp][j % 16 + 1][r] = right;
      } else {
        *reinterpret_cast<uint32_t*>(&s.coupling[i][j]) = pack_pair(-left, -right);
      }
    }
  }
  const ChunkRows rows = chunk_rows(p, at.head);
#pragma unroll
  for (int half = 0; half < 2; ++half)
    put_rows(scores + 4 * half, at.lane, [&](int r, int column, uint4 eight) {
      const int i = 16 * warp + r;
      if (i < at.count)
        *reinterpret_cast<uint4*>(rows.scores + (rows.first + at.row + i) * kChunk + 32 * half + column) =
            eight;
    });
}

// Column lane % 16 of the inverse of the warp's diagonal block of I + A.
__device__ __forceinline__ void invert(SolveTile& s, const SolvePlace& at, float (&y)[16]) {
  const int column = at.lane % 16;
#pragma unroll
  for (int r = 0; r < 16; ++r) y[r] = r == column ? 1.0f : 0.0f;
#pragma unroll
  for (int j = 0; j < 15; ++j) {
#pragma unroll
    for (int r = 0; r < 16; r += 4) {
      if (r + 3 <= j) continue;
      const float4 a = *reinterpret_cast<const float4*>(&s.diagonal[at.warp][j][r]);  // rows up to j: zeros
      y[r] = fmaf(-a.x, r > j ? y[j] : 0.0f, y[r]);
      y[r + 1] = fmaf(-a.y, r + 1 > j ? y[j] : 0.0f, y[r + 1]);
      y[r + 2] = fmaf(-a.z, r + 2 > j ? y[j] : 0.0f, y[r + 2]);
      y[r + 3] = fmaf(-a.w, y[j], y[r + 3]);
    }
  }
  if (at.lane >= 16) return;
#pragma unroll
  for (int r = 0; r < 16; ++r) s.inverse[at.warp][r][column] = __float2bfloat16(y[r]);
}

// Blocks [i, warp] of T for i >= warp; `y` is the lane's column of the diagonal one.
__device__ __forceinline__ void merge(SolveTile& s, const SolvePlace& at, const float (&y)[16]) {
  const int warp = at.warp, g = at.lane / 4, t = at.lane % 4;
  {
    const int column = 16 * warp + at.lane % 16;
    const bool upper = at.lane < 16;
    bf16(*const to)[kTokenPitch] = upper ? s.t.w : s.t.u;
    const float factor = upper ? s.w_factor[column] : s.beta[column];
#pragma unroll
    for (int r = 0; r < 16; ++r) to[16 * warp + r][column] = __float2bfloat16(y[r] * factor);
  }
  const int columns[2] = {16 * warp + g, 16 * warp + g + 8};
  const float w_factor[2] = {s.w_factor[columns[0]], s.w_factor[columns[1]]},
              u_factor[2] = {s.beta[columns[0]], s.beta[columns[1]]};
  Fragment blocks[4];  // transposed
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < warp) continue;
    if (i == warp) {
      load_first_transposed(s.inverse[i], 0, 0, blocks[i]);
      continue;
    }
    float c[2][4] = {};
#pragma unroll
    for (int k = 0; k < i; ++k) {
      if (k < warp) continue;
      Fragment b;
      load_second_rows(s.coupling, 16 * k, 16 * i, b);
      multiply(c, blocks[k], b);
    }
    Fragment sum, b;
    as_first(c, sum);
    load_second_rows(s.inverse[i], 0, 0, b);
    float block[2][4] = {};
    multiply(block, sum, b);
    as_first(block, blocks[i]);
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = 16 * i + 8 * n + 2 * t + e % 2;
        s.t.w[row][columns[e / 2]] = __float2bfloat16(block[n][e] * w_factor[e / 2]);
        s.t.u[row][columns[e / 2]] = __float2bfloat16(block[n][e] * u_factor[e / 2]);
      }
  }
}

// Columns [column, column + 32) of t · m, t being zero above the diagonal; put(row, column of the 32, eight numbers).
template <class Put>
__device__ __forceinline__ void products(const bf16 (*t)[kTokenPitch], const bf16 (*m)[kKeyPitch], int column,
                                         const Put& put) {
  Fragment b[4][2];
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) load_second(m, 16 * k, column + 16 * pair, b[k][pair]);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float c[4][4] = {};
#pragma unroll
    for (int k = 0; k <= i; ++k) {
      Fragment a;
      load_first(t, 16 * i, 16 * k, a);
      multiply(c, a, b[k][0]);
      multiply(c + 2, a, b[k][1]);
    }
    put_rows(c, static_cast<int>(threadIdx.x) % 32,
             [&](int r, int at, uint4 eight) { put(16 * i + r, at, eight); });
  }
}

struct Columns {
  int64_t first;
  int count;
};
// Columns of the inputs.
template <int kWide>
__device__ __forceinline__ void copy_columns(bf16 (*to)[kKeyPitch], const DeltaParams& p,
                                             const SolvePlace& at, const Columns& columns) {
  RowsToCopy rows = rows_of(p.qkv, at.row, columns.first);
  rows.count = at.count, rows.width = columns.count, rows.thread = static_cast<int>(threadIdx.x);
  copy_rows<kWide, kSolveThreads>(to, rows);
}
// Up to 128 columns of the head's values.
__device__ __forceinline__ void copy_values(const DeltaParams& p, SolveTile& s, const SolvePlace& at,
                                            int first) {
  copy_columns<kValues>(s.v, p, at, {values_of(p, at.head) + first, p.value_dim - first});
  end_copies();
}

// grid: (value heads, chunks)
__global__ void __launch_bounds__(kSolveThreads, 3) delta_solve_kernel(const DeltaParams p) {
  extern __shared__ __align__(16) uint8_t raw[];
  SolveTile& s = *reinterpret_cast<SolveTile*>(raw);
  static_assert(kValues + 8 == kKeyPitch);
  allow_dependents();
  wait_for_producer();
  const SolvePlace at{p.chunks[2 * blockIdx.y], p.chunks[2 * blockIdx.y + 1], static_cast<int>(blockIdx.x),
                      static_cast<int>(threadIdx.x / 32 + blockIdx.x) % kWarps,
                      static_cast<int>(threadIdx.x) % 32};
  const int64_t query = int64_t{key_head_of(p, at.head)} * p.key_dim;
  copy_columns<kKeys>(s.q, p, at, {query, p.key_dim});
  copy_columns<kKeys>(s.k, p, at, {query + int64_t{p.key_heads} * p.key_dim, p.key_dim});
  end_copies();
  copy_values(p, s, at, 0);
  load_gates(p, s, at);
  await_copies<1>();
  __syncthreads();
  measure(p, s, at);
  __syncthreads();
  store_factors(p, s, at);
  couple(p, s, at);
  __syncwarp();
  float y[16];
  invert(s, at, y);
  __syncthreads();
  merge(s, at, y);
  await_copies<0>();
  __syncthreads();
  const ChunkRows rows = chunk_rows(p, at.head);
  const int column = 32 * at.warp;
  products(s.t.w, s.k, column, [&](int i, int j, uint4 eight) {
    if (i < at.count)
      *reinterpret_cast<uint4*>(rows.w + (rows.first + at.row + i) * kKeys + column + j) = eight;
  });
  for (int first = 0; first < p.value_dim; first += kValues) {
    if (first > 0) {
      __syncthreads();
      copy_values(p, s, at, first);
      await_copies<0>();
      __syncthreads();
    }
    if (first + column >= p.value_dim) continue;
    const int64_t place = int64_t{at.head} * p.value_dim + first + column;
    products(s.t.u, s.v, column, [&](int i, int j, uint4 eight) {
      if (i < at.count)
        *reinterpret_cast<uint4*>(static_cast<bf16*>(p.out.data) + (at.row + i) * p.out.stride_n + place +
                                  j) = eight;
    });
  }
}

}  // namespace

void launch_delta_solve(const DeltaParams& p, Stream stream) {
  static const cudaError_t attribute = cudaFuncSetAttribute(
      delta_solve_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(SolveTile));
  check_launch(attribute, "delta solve");
  launch("delta solve", delta_solve_kernel,
         {blocks(p.value_heads, p.chunk_count), dim3(kSolveThreads), sizeof(SolveTile)}, stream, p);
}

}  // namespace sluice::kernels::cuda

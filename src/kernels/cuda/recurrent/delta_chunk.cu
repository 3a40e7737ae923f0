// The gated delta rule of long steps, 64 tokens at a time on tensor cores; sums in another order than delta_rule.cu has.
//
// With decays d and g_i = log d_1 + ... + log d_i, a chunk's tokens write rows x_i with key k_i to the state S:
//   x_i = beta_i (v_i - exp(g_i) k_i S - sum over j < i of exp(g_i - g_j) (k_i · k_j) x_j)
//   out_i = exp(g_i) q_i S + sum over j <= i of exp(g_i - g_j) (q_i · k_j) x_j
//   S' = exp(g_64) S + sum of exp(g_64 - g_j) k_jᵀ x_j
// The first is a system (I + A) X = R with A strictly lower: blocks of 16 rows one after the other, each multiplied with the
// inverse of its diagonal block.
//
// A block has 64 columns of a head's state of one sequence: in f32 in registers, a warp 32 of the rows, and rounded to bf16 in
// shared memory for the products. Of tokens a warp has 16 rows of the chunk. A chunk ends where a state is saved; what is
// missing of it has no keys. Operations of a chunk: 4 · 64 · 128 · 64 and 2 · 64 · 64 · (2 · 128 + 64), about.
#include "kernels/cuda/recurrent/delta_rule.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kChunk = 64, kKeys = 128, kColumns = 64, kWarps = 4;
constexpr int kKeyPitch = kKeys + 8, kPitch = kColumns + 8,
              kInversePitch = 24;  // rows of ldmatrix in different banks

struct ChunkTile {
  bf16 q[kChunk][kKeyPitch], k[kChunk][kKeyPitch];
  bf16 state[kKeys][kPitch];                          // [key, column]
  bf16 coupling[kChunk][kPitch];                      // -A, blocks below the diagonal ones
  bf16 scores[kChunk][kPitch];                        // of q, masked and decayed
  bf16 x[kChunk][kPitch], decayed_x[kChunk][kPitch];  // [token, column]; the latter times exp(g_64 - g)
  bf16 inverse[kWarps][16][kInversePitch];
  float diagonal[kWarps][16][17];
  float g[kChunk], up[kChunk], down[kChunk], beta[kChunk];  // up = exp(g), down = exp(g_64 - g)
};

using Fragment = uint32_t[4];
using Sums = float[8][4];  // 16 rows by 64 columns

__device__ __forceinline__ uint32_t address_of(const bf16* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// As load_matrices(), each matrix transposed.
__device__ __forceinline__ void load_transposed(uint32_t address, Fragment& b) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(address)
               : "memory");
}

// Where a lane's row of four 8 x 8 matrices lies: in both functions the second matrix is one step in the first direction that
// the name says.
__device__ __forceinline__ int down_first() {
  return static_cast<int>(threadIdx.x) % 8 + static_cast<int>(threadIdx.x) / 8 % 2 * 8;
}
__device__ __forceinline__ int across_second() {
  return static_cast<int>(threadIdx.x) % 32 / 16 * 8;
}
__device__ __forceinline__ int down_second() {
  return static_cast<int>(threadIdx.x) % 8 + across_second();
}
__device__ __forceinline__ int across_first() {
  return static_cast<int>(threadIdx.x) / 8 % 2 * 8;
}

// Rows [row, row + 16) and columns [column, column + 16) of m as the first operand.
template <int Pitch>
__device__ __forceinline__ void load_first(const bf16 (*m)[Pitch], int row, int column, Fragment& a) {
  load_matrices(address_of(&m[row + down_first()][column + across_second()]), a);
}
// Columns [row, row + 16) of rows [column, column + 16) of m, transposed.
template <int Pitch>
__device__ __forceinline__ void load_first_transposed(const bf16 (*m)[Pitch], int row, int column,
                                                      Fragment& a) {
  load_transposed(address_of(&m[column + down_second()][row + across_first()]), a);
}
// The second operand of two instructions side by side: 16 rows of m from `row` on, which are summed over, 16 columns.
template <int Pitch>
__device__ __forceinline__ void load_second(const bf16 (*m)[Pitch], int row, int column, Fragment& b) {
  load_transposed(address_of(&m[row + down_first()][column + across_second()]), b);
}
// The same of rows that are columns: 16 rows of m from `column` on, of which columns [row, row + 16) are summed over.
template <int Pitch>
__device__ __forceinline__ void load_second_rows(const bf16 (*m)[Pitch], int row, int column, Fragment& b) {
  load_matrices(address_of(&m[column + down_second()][row + across_first()]), b);
}

__device__ __forceinline__ void multiply(float (&c)[4], const Fragment& a, uint32_t b0, uint32_t b1) {
  mma_bf16(c, a[0], a[1], a[2], a[3], b0, b1);
}

// sums += a · rows [row, row + 16) of m, all columns.
__device__ __forceinline__ void add_product(Sums& sums, const Fragment& a, const bf16 (*m)[kPitch], int row) {
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    Fragment b;
    load_second(m, row, 16 * pair, b);
    multiply(sums[2 * pair], a, b[0], b[1]);
    multiply(sums[2 * pair + 1], a, b[2], b[3]);
  }
}

// A thread's elements of 16 rows by 64 columns: fill(row, column, first, second) for rows 0 to 15, two columns at a time.
template <class Visit>
__device__ __forceinline__ void visit(Sums& sums, const Visit& each) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    each(g, 8 * n + 2 * t, sums[n][0], sums[n][1]);
    each(g + 8, 8 * n + 2 * t, sums[n][2], sums[n][3]);
  }
}

__device__ __forceinline__ void clear(Sums& sums) {
#pragma unroll
  for (auto& four : sums)
#pragma unroll
    for (float& sum : four) sum = 0.0f;
}

__device__ __forceinline__ void store_two(bf16* to, float first, float second) {
  *reinterpret_cast<uint32_t*>(to) = pack_pair(first, second);
}

// Tokens [row, row + count) of the step; the rest of the chunk has no keys and no decay.
__device__ void load_chunk(const DeltaParams& p, ChunkTile& s, int64_t row, int count) {
  const int head = static_cast<int>(blockIdx.y), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 4
  for (int t = warp; t < kChunk; t += kWarps) {
    if (t < count) {
      unit_keys<bf16, kKeys / 32>(p, row + t, head, [&](int i, float q, float k) {
        s.q[t][i] = __float2bfloat16(q);
        s.k[t][i] = __float2bfloat16(k);
      });
    } else {
      for (int i = lane; i < kKeys; i += 32) s.q[t][i] = s.k[t][i] = __float2bfloat16(0.0f);
    }
  }
  if (warp != 0) return;
  float sum = 0.0f;
#pragma unroll
  for (int half = 0; half < kChunk; half += 32) {
    const int t = half + lane;
    float g = t < count ? log_decay_of<bf16>(p, row + t, head, head) : 0.0f;
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
      const float before = __shfl_up_sync(0xffffffffu, g, o);
      if (lane >= o) g += before;
    }
    s.g[t] = g += sum;
    s.beta[t] = t < count ? beta_of<bf16>(p, row + t, head) : 0.0f;
    sum = __shfl_sync(0xffffffffu, g, 31);
  }
  __syncwarp();
#pragma unroll
  for (int t = lane; t < kChunk; t += 32) {
    s.up[t] = __expf(s.g[t]);
    s.down[t] = __expf(sum - s.g[t]);
  }
}

// The warp's 16 rows of A and of the scores.
__device__ __forceinline__ void couple(ChunkTile& s, int warp) {
  Sums keys, scores;
  clear(keys);
  clear(scores);
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
      multiply(keys[2 * pair], key, b[0], b[1]);
      multiply(keys[2 * pair + 1], key, b[2], b[3]);
      multiply(scores[2 * pair], query, b[0], b[1]);
      multiply(scores[2 * pair + 1], query, b[2], b[3]);
    }
  }
  const auto decay = [&](int i, int j) { return j <= i ? __expf(s.g[i] - s.g[j]) : 0.0f; };
  visit(scores, [&](int r, int j, float first, float second) {
    const int i = 16 * warp + r;
    store_two(&s.scores[i][j], first * decay(i, j), second * decay(i, j + 1));
  });
  visit(keys, [&](int r, int j, float first, float second) {
    const int i = 16 * warp + r;
    const float beta = s.beta[i];
    first = j < i ? beta * decay(i, j) * first : 0.0f;
    second = j + 1 < i ? beta * decay(i, j + 1) * second : 0.0f;
    if (j / 16 < warp) store_two(&s.coupling[i][j], -first, -second);
    if (j / 16 == warp) s.diagonal[warp][r][j % 16] = first, s.diagonal[warp][r][j % 16 + 1] = second;
  });
}

// (I + A)⁻¹ of the warp's diagonal block: a lane makes a column of it.
__device__ __forceinline__ void invert(ChunkTile& s, int warp) {
  const int column = threadIdx.x % 16;
  float y[16];
#pragma unroll
  for (int r = 0; r < 16; ++r) {
    y[r] = r == column ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < r; ++j) y[r] = fmaf(-s.diagonal[warp][r][j], y[j], y[r]);
    s.inverse[warp][r][column] = __float2bfloat16(y[r]);
  }
}

// The warp's rows of X, of which `right` are those of R.
__device__ __forceinline__ void solve(ChunkTile& s, int warp, Sums& right) {
  for (int block = 0; block < warp; ++block) {
    Fragment a;
    load_first(s.coupling, 16 * warp, 16 * block, a);
    add_product(right, a, s.x, 16 * block);
  }
  visit(right,
        [&](int r, int j, float first, float second) { store_two(&s.x[16 * warp + r][j], first, second); });
  __syncwarp();
  Fragment inverse;
  load_first(s.inverse[warp], 0, 0, inverse);
  clear(right);
  add_product(right, inverse, s.x, 16 * warp);
  __syncwarp();
  visit(right, [&](int r, int j, float first, float second) {
    const int i = 16 * warp + r;
    store_two(&s.x[i][j], first, second);
    store_two(&s.decayed_x[i][j], first * s.down[i], second * s.down[i]);
  });
}

// A warp's 32 rows of the state.
struct ChunkState {
  Sums sums[2];

  // each(element of the head's state, first, second)
  template <class Visit>
  __device__ __forceinline__ void visit_all(const DeltaParams& p, const Visit& each) {
    const int64_t at = int64_t{blockIdx.y} * p.key_dim * p.value_dim + blockIdx.x * kColumns;
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int m = 0; m < 2; ++m)
      visit(sums[m], [&](int r, int j, float& first, float& second) {
        const int key = 32 * warp + 16 * m + r;
        if (key < p.key_dim) each(at + int64_t{key} * p.value_dim + j, first, second);
      });
  }
  __device__ __forceinline__ void load(const DeltaParams& p, const float* from) {
    clear(sums[0]);
    clear(sums[1]);
    if (from == nullptr) return;
    visit_all(p, [&](int64_t at, float& first, float& second) {
      const float2 both = *reinterpret_cast<const float2*>(from + at);
      first = both.x, second = both.y;
    });
  }
  __device__ __forceinline__ void store(const DeltaParams& p, float* to) {
    visit_all(p, [&](int64_t at, float first, float second) {
      *reinterpret_cast<float2*>(to + at) = make_float2(first, second);
    });
  }
  // Rounded, for the products.
  __device__ __forceinline__ void share(ChunkTile& s, int warp) {
#pragma unroll
    for (int m = 0; m < 2; ++m)
      visit(sums[m], [&](int r, int j, float first, float second) {
        store_two(&s.state[32 * warp + 16 * m + r][j], first, second);
      });
  }
  __device__ __forceinline__ void advance(const ChunkTile& s, int warp) {
    const float decay = s.up[kChunk - 1];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (auto& four : sums[m])
#pragma unroll
        for (float& sum : four) sum *= decay;
#pragma unroll
      for (int token = 0; token < kChunk; token += 16) {
        Fragment a;
        load_first_transposed(s.k, 32 * warp + 16 * m, token, a);
        add_product(sums[m], a, s.decayed_x, token);
      }
    }
  }
};

// One chunk; the state is shared before and after.
__device__ __forceinline__ void run_chunk(const DeltaParams& p, ChunkTile& s, ChunkState& state, int64_t row,
                                          int count) {
  const int warp = threadIdx.x / 32, head = static_cast<int>(blockIdx.y);
  const int64_t first_column = blockIdx.x * kColumns;
  load_chunk(p, s, row, count);
  __syncthreads();
  couple(s, warp);
  __syncwarp();
  invert(s, warp);
  Sums right, out;
  clear(right);
  clear(out);
#pragma unroll
  for (int k = 0; k < kKeys; k += 16) {
    Fragment key, query;
    load_first(s.k, 16 * warp, k, key);
    load_first(s.q, 16 * warp, k, query);
    add_product(right, key, s.state, k);
    add_product(out, query, s.state, k);
  }
  const int64_t values = values_of(p, head) + first_column;
  visit(right, [&](int r, int j, float& first, float& second) {
    const int i = 16 * warp + r;
    const bool there = i < count;
    const float up = s.up[i], beta = s.beta[i];
    first = there ? beta * (element<bf16>(p.qkv, row + i, values + j) - up * first) : 0.0f;
    second = there ? beta * (element<bf16>(p.qkv, row + i, values + j + 1) - up * second) : 0.0f;
  });
  __syncwarp();
  for (int block = 0; block < kWarps; ++block) {
    if (block == warp) solve(s, warp, right);
    __syncthreads();
  }
  visit(out, [&](int r, int, float& first, float& second) {
    const float up = s.up[16 * warp + r];
    first *= up, second *= up;
  });
  for (int block = 0; block <= warp; ++block) {
    Fragment a;
    load_first(s.scores, 16 * warp, 16 * block, a);
    add_product(out, a, s.x, 16 * block);
  }
  visit(out, [&](int r, int j, float first, float second) {
    const int i = 16 * warp + r;
    if (i >= count) return;
    const int64_t column = int64_t{head} * p.value_dim + first_column + j;
    set_element<bf16>(p.out, row + i, column, first);
    set_element<bf16>(p.out, row + i, column + 1, second);
  });
  state.advance(s, warp);
  state.share(s, warp);
  __syncthreads();
}

// grid: (pieces of 64 columns, value heads, sequences)
__global__ void __launch_bounds__(32 * kWarps) delta_chunk_kernel(const DeltaParams p) {
  extern __shared__ __align__(16) uint8_t raw[];
  ChunkTile& s = *reinterpret_cast<ChunkTile*>(raw);
  allow_dependents();
  wait_for_producer();
  Walk walk(p.states, static_cast<int>(blockIdx.z));
  ChunkState state;
  state.load(p, walk.from);
  state.share(s, threadIdx.x / 32);
  for (int32_t row = walk.begin; row < walk.end;) {
    int32_t last = walk.end < row + kChunk ? walk.end : row + kChunk;
    const auto next_save = [&] {
      return walk.save < walk.last_save ? walk.begin + p.states.saves[2 * walk.save] : walk.end + 1;
    };
    if (next_save() < last) last = next_save();
    run_chunk(p, s, state, row, last - row);
    for (; next_save() == last; ++walk.save)
      state.store(p, p.states.data + p.states.saves[2 * walk.save + 1] * p.states.stride);
    row = last;
  }
}

}  // namespace

bool delta_chunk_fits(const DeltaParams& p) {
  constexpr int64_t kFewestTokens = 32;  // of a sequence in the mean
  return p.fixed_order == 0 && p.qkv.type == DType::BF16 && p.channel_decay == 0 && p.key_dim <= kKeys &&
         p.value_dim % kColumns == 0 && p.states.stride % 2 == 0 &&
         p.qkv.n >= kFewestTokens * p.states.sequences &&
         reinterpret_cast<uintptr_t>(p.states.data) % sizeof(float2) == 0;
}

void launch_delta_chunk(const DeltaParams& p, Stream stream) {
  static const cudaError_t attribute = cudaFuncSetAttribute(
      delta_chunk_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(ChunkTile));
  check_launch(attribute, "delta chunk");
  launch("delta chunk", delta_chunk_kernel,
         {blocks(p.value_dim / kColumns, p.value_heads, p.states.sequences), dim3(32 * kWarps),
          sizeof(ChunkTile)},
         stream, p);
}

}  // namespace sluice::kernels::cuda

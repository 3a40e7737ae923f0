// What the two kernels of the gated delta rule in chunks share: tiles of shared memory as operands of mma.sync, copies to
// shared memory that run beside the work, and where the first kernel leaves what the second reads.
//
// With decays d and g_i = log d_1 + ... + log d_i, a chunk's tokens write rows x_i with key k_i to the state S:
//   x_i = beta_i (v_i - exp(g_i) k_i S - sum over j < i of exp(g_i - g_j) (k_i · k_j) x_j)
//   out_i = exp(g_i) q_i S + sum over j <= i of exp(g_i - g_j) (q_i · k_j) x_j
//   S' = exp(g_64) S + sum of exp(g_64 - g_j) k_jᵀ x_j
// With A_ij = beta_i exp(g_i - g_j) (k_i · k_j) for j < i and T = (I + A)⁻¹ that is
//   X = U - W S,  U = T diag(beta) V,  W = T diag(beta exp(g)) K
// of which U, W and the scores exp(g_i - g_j) (q_i · k_j) need no state: delta_chunk_solve.cu makes them for all chunks at
// once, delta_chunk.cu goes through the chunks of a sequence. Queries and keys enter products as they are stored; their lengths
// are in the factors of rows and columns.
#pragma once

#include "kernels/cuda/recurrent/delta_rule.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kChunk = kDeltaChunk, kKeys = kDeltaChunkKeys;
// Rows of ldmatrix in different banks.
constexpr int kKeyPitch = kKeys + 8, kTokenPitch = kChunk + 8;

using Fragment = uint32_t[4];

__device__ __forceinline__ uint32_t address_of(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// As load_matrices(), each matrix transposed.
__device__ __forceinline__ void load_transposed(uint32_t address, Fragment& b) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(address)
               : "memory");
}
// Of an 8 x 8 matrix lane 4g + t has elements 2t and 2t + 1 of row g; it gets those of the transposed one.
__device__ __forceinline__ uint32_t transposed(uint32_t pair) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

// 16 bytes, or zeros; `from` is an address of the array in either case.
__device__ __forceinline__ void copy_async(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address_of(to)), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copy_float_async(float* to, const float* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address_of(to)), "l"(from),
               "r"(there ? 4 : 0)
               : "memory");
}
// What was copied since the last call is a group.
__device__ __forceinline__ void end_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// This thread's copies are there but for those of the last kLeft groups.
template <int kLeft>
__device__ __forceinline__ void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// Where a lane's row of four 8 x 8 matrices lies: the second matrix is one step in the direction whose function says
// `first`, the third one step in the other.
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

// Two tiles of 8 columns side by side: c += a · b.
__device__ __forceinline__ void multiply(float (*c)[4], const Fragment& a, const Fragment& b) {
  mma_bf16(c[0], a[0], a[1], a[2], a[3], b[0], b[1]);
  mma_bf16(c[1], a[0], a[1], a[2], a[3], b[2], b[3]);
}
// Sums of 16 x 16 as the first operand of the next product; columns 2t and 2t + 1 of a tile times two factors.
__device__ __forceinline__ void as_first(const float (*c)[4], float2 left, float2 right, Fragment& a) {
  a[0] = pack_pair(c[0][0] * left.x, c[0][1] * left.y);
  a[1] = pack_pair(c[0][2] * left.x, c[0][3] * left.y);
  a[2] = pack_pair(c[1][0] * right.x, c[1][1] * right.y);
  a[3] = pack_pair(c[1][2] * right.x, c[1][3] * right.y);
}
__device__ __forceinline__ void as_first(const float (*c)[4], Fragment& a) {
  as_first(c, make_float2(1.0f, 1.0f), make_float2(1.0f, 1.0f), a);
}

// Scratch memory between the kernels, [value heads, tokens] of each; U is where the results will be.
struct ChunkRows {
  bf16* w;       // [128] -W
  bf16* scores;  // [64] zero behind the token
  // What rows of q S and of X are multiplied with: exp(g) and exp(g_64 - g), with the lengths of q and k.
  float *up, *down;
  float* decay;   // exp(g_64), of a chunk's first token alone
  int64_t first;  // row of the head's first token
};
__device__ __forceinline__ ChunkRows chunk_rows(const DeltaParams& p, int head) {
  const int64_t rows = p.qkv.n * p.value_heads;
  ChunkRows r{};
  r.w = static_cast<bf16*>(p.scratch);
  r.scores = r.w + rows * kKeys;
  r.up = reinterpret_cast<float*>(r.scores + rows * kChunk);
  r.down = r.up + rows;
  r.decay = r.down + rows;
  r.first = p.qkv.n * head;
  return r;
}
constexpr int64_t kChunkRowBytes = (kKeys + kChunk) * 2 + 3 * 4;

struct RowsToCopy {
  const bf16* data;
  int64_t stride;
  int count, width;  // tokens and columns that there are; width: a multiple of 8
  int thread;        // of those that copy
};
__device__ __forceinline__ RowsToCopy rows_of(const View& v, int64_t row, int64_t column) {
  return {static_cast<const bf16*>(v.data) + row * v.stride_n + column, v.stride_n, 0, 0, 0};
}
// Rows of a chunk to shared memory by kCopyThreads threads; what is missing of 64 x kWide becomes zeros.
template <int kWide, int kCopyThreads, int Pitch>
__device__ __forceinline__ void copy_rows(bf16 (*to)[Pitch], const RowsToCopy& from) {
  constexpr int kPieces = kWide / 8, kStep = kCopyThreads / kPieces;
  static_assert(kCopyThreads % kPieces == 0 && kChunk % kStep == 0);
  const int at = from.thread % kPieces * 8, first = from.thread / kPieces;
  const bf16* const base = from.data;
#pragma unroll
  for (int i = 0; i < kChunk / kStep; ++i) {
    const int t = first + i * kStep;
    const bool there = t < from.count && at < from.width;
    copy_async(&to[t][at], there ? base + t * from.stride + at : base, there);
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda

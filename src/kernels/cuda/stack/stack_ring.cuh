// Words of the kernel that runs a stack of layers: shared memory, the ring of slots that the producer fills, and what blocks
// hand to each other in global memory.
//
// Blocks never meet. What one hands over lies in words that hold kStackVoid before, which no result is: a reader looks at the
// words it needs until none of them is void. A word of 32 bits is stored and read as a whole and says only of itself that it is
// there, so neither the order of words nor vectors that come in pieces matter. Words are erased a layer later, when all have
// read them (stack.cu says why none is taken for one of another layer).
#pragma once

#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/stack/stack_params.h"

namespace sluice::kernels::cuda::stack {

constexpr int kWarps = 8;                            // of consumers
constexpr int kThreads = kWarps * 32 + 128;          // and a warpgroup whose first thread is the producer
constexpr int kChunk = 1024;                         // columns of 8 rows of a matrix in one slot
constexpr int kPitch = kChunk * 2 + 64;              // bytes; rows of a quarter warp lie in different banks
constexpr int kSlots = 11, kSlotBytes = 8 * kPitch;  // of the ring
constexpr int kColumns = kChunk / kWarps;            // of a warp in a chunk ...
constexpr int kPieces = kColumns / 32;               // ... of which a lane holds eight of every 32
constexpr int kResident = kStackWidth / kChunk;      // chunks of a row that a warp holds its columns of
constexpr int kGroups = 8;                           // of 8 rows whose sums the warps add up at a time
constexpr int kLongGroups = 4;                       // the same of matrices with longer rows
constexpr int kPartWords = kGroups * kWarps * 64;    // sums of all warps
constexpr int kEagerTokens = 1;                      // that are looked for as a whole
constexpr int kNap = 40;                             // ns between two looks
constexpr int kTile = 64;                            // keys of one slot
constexpr float kLog2E = 1.44269504088896340736f;

template <int Dim>
struct Layout {
  static constexpr int kRing = 0, kParts = kRing + kSlots * kSlotBytes;
  static constexpr int kQueryPitch = Dim + 8;  // elements
  static constexpr int kQueries = kParts + 2 * kPartWords * 4;
  static constexpr int kNewKey = kQueries + 8 * kQueryPitch * 2, kNewValue = kNewKey + Dim * 2;
  static constexpr int kSums = kNewValue + Dim * 2;        // float2 [warps, 8]: maximum and sum
  static constexpr int kSquares = kSums + kWarps * 8 * 8;  // [2, warps, 8]
  static constexpr int kBarriers = kSquares + 2 * kWarps * 8 * 4;
  static constexpr int kErase = kBarriers + 2 * kSlots * 8;  // barriers: may begin, has ended
  static constexpr int kPlan = kErase + 16;
  static constexpr int kRows = kPlan + 128;  // one token's columns of each warp
  static constexpr int kShared = kRows + kWarps * kResident * kColumns * 2;
  // Of several tokens in the same place: what the other block of a pair hands over, and its barrier.
  static constexpr int kTheirs = kRows, kPair = kTheirs + kWarps * 32 / 2 * 16;
  // Runs of eight keys are 16 bytes further apart than they are long: the same piece of keys of different runs is in
  // different banks.
  static constexpr int kRun = 8 * Dim * 2, kRunPitch = kRun + 16;
  static_assert(kShared <= 232448, "shared memory of a block");
  static_assert(kPair + 8 <= kShared);
  static_assert(8 * kRunPitch <= kSlotBytes, "a tile fits a slot");
};

// Where a thread is in the ring.
struct Cursor {
  uint32_t ring = 0, full = 0, empty = 0;
  int slot = 0;
  uint32_t phase = 0;

  __device__ __forceinline__ uint32_t at() const { return ring + slot * kSlotBytes; }
  __device__ __forceinline__ uint32_t full_barrier() const { return full + 8 * slot; }
  __device__ __forceinline__ uint32_t empty_barrier() const { return empty + 8 * slot; }
  __device__ __forceinline__ void advance() {
    if (++slot == kSlots) slot = 0, phase ^= 1;
  }
  __device__ __forceinline__ void wait_full() const { barrier_wait(full_barrier(), phase); }
};

__device__ __forceinline__ uint4 load_shared(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

__device__ __forceinline__ void store_shared(uint32_t address, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

// -- what blocks hand over

__device__ __forceinline__ uint4 look4(const void* p) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
__device__ __forceinline__ uint2 look2(const void* p) {
  uint2 v;
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ uint32_t look1(const void* p) {
  uint32_t v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ bool there(uint4 v) {
  return v.x != kStackVoid && v.y != kStackVoid && v.z != kStackVoid && v.w != kStackVoid;
}
__device__ __forceinline__ bool there(uint2 v) {
  return v.x != kStackVoid && v.y != kStackVoid;
}
// Results of conversions and sums are never void; a word that is one all the same becomes two other NaNs.
__device__ __forceinline__ uint32_t not_void(uint32_t v) {
  return v == kStackVoid ? 0x7fff7fffu : v;
}
__device__ __forceinline__ void hand1(uint32_t* p, uint32_t v) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(not_void(v)) : "memory");
}
__device__ __forceinline__ void hand2(uint32_t* p, float a, float b) {
  asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1,%2};" ::"l"(p), "r"(not_void(__float_as_uint(a))),
               "r"(not_void(__float_as_uint(b)))
               : "memory");
}
__device__ __forceinline__ void erase4(uint32_t* p) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1,%1,%1,%1};" ::"l"(p), "r"(kStackVoid) : "memory");
}

// -- what the two blocks of a cluster hand to each other, by shared memory

__device__ __forceinline__ uint32_t blocks_of_cluster() {
  uint32_t n;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
  return n;
}
__device__ __forceinline__ uint32_t address_in(uint32_t address, uint32_t rank) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}
// Counts 16 bytes at the other block's barrier when they are there.
__device__ __forceinline__ void hand_across(uint32_t to, uint32_t barrier, float4 v) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];" ::"r"(to),
      "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void wait_across(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

__device__ __forceinline__ float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
// Rows 0 to 7 of the first operand and of the result; the others are zero.
__device__ __forceinline__ void mma_eight(float (&c)[2], uint32_t a0, uint32_t a2, uint32_t b0, uint32_t b1) {
  [[maybe_unused]] float unused[2];
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%5},{%7,%8},{%0,%1,%9,%9};"
      : "+f"(c[0]), "+f"(c[1]), "=f"(unused[0]), "=f"(unused[1])
      : "r"(a0), "r"(0), "r"(a2), "r"(b0), "r"(b1), "f"(0.0f));
}
__device__ __forceinline__ void sync_consumers() {
  asm volatile("bar.sync 1, %0;" ::"n"(kWarps * 32) : "memory");
}

}  // namespace sluice::kernels::cuda::stack

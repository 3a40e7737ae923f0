// The producer of a block: one thread that sends all the block reads of weights and of earlier keys and values, of all layers
// in the order of use, into the ring. None of it depends on what the launch computes, so it never waits for another block.
#pragma once

#include "kernels/cuda/stack/stack_plan.cuh"

namespace sluice::kernels::cuda::stack {

template <int Dim>
class Producer {
 public:
  __device__ __forceinline__ Producer(const StackParams& params, const Plan& plan, const Cursor& cursor)
      : p_(params), plan_(plan), cursor_(cursor), policy_(read_once_policy()) {}

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int layer = 0; layer < p_.count; ++layer) {
#pragma unroll 1
      for (int stage = 0; stage < 4; ++stage) send_stage(p_.layers[layer], stage);
    }
  }

 private:
  __device__ __forceinline__ void open(uint32_t bytes) {
    barrier_wait(cursor_.empty_barrier(), cursor_.phase ^ 1);
    barrier_expect(cursor_.full_barrier(), bytes);
  }
  __device__ __forceinline__ void send(uint32_t offset, const void* from, uint32_t bytes) {
    copy_bytes(cursor_.at() + offset, from, bytes, cursor_.full_barrier(), policy_);
  }
  __device__ __forceinline__ void send_gain(const float* gain) {
    const uint32_t bytes = static_cast<uint32_t>(p_.x.dim) * 4;
    open(bytes);
    send(0, gain, bytes);
    cursor_.advance();
  }
  // A chunk of eight rows: four from `low` on, four from `high` on.
  __device__ __forceinline__ void send_rows(const bf16* low, const bf16* high, int64_t stride, int columns) {
    const uint32_t bytes = static_cast<uint32_t>(columns) * 2;
    open(8 * bytes);
#pragma unroll
    for (int r = 0; r < 4; ++r) send(r * kPitch, low + r * stride, bytes);
#pragma unroll
    for (int r = 0; r < 4; ++r) send((4 + r) * kPitch, high + r * stride, bytes);
    cursor_.advance();
  }
  __device__ __forceinline__ void send_tile(const bf16* from, int keys) {
    using L = Layout<Dim>;
    const int runs = (keys + 7) / 8;
    open(static_cast<uint32_t>(runs) * L::kRun);
#pragma unroll 1
    for (int r = 0; r < runs; ++r) send(r * L::kRunPitch, from + r * 8 * Dim, L::kRun);
    cursor_.advance();
  }
  __device__ __forceinline__ void send_context(const StackLayer& layer) {
    SegmentWalk walk(plan_);
    Segment s;
#pragma unroll 1
    while (walk.next(plan_, s)) {
      const int32_t* blocks = p_.table.blocks + plan_.rows[s.token];
      const int context = plan_.contexts[s.token];
#pragma unroll 1
      for (int tile = s.tile; tile < s.end; ++tile) {
        const int key = tile * kTile;
        const int64_t at = blocks[key >> p_.block_shift] * p_.stride_block + s.head * p_.stride_head +
                           (key & ((1 << p_.block_shift) - 1)) * Dim;
        const int keys = min(kTile, context - key);
#pragma unroll 1
        for (int i = 0; i < 2; ++i)
          send_tile(static_cast<const bf16*>(i == 0 ? layer.keys : layer.values) + at, keys);
      }
    }
  }
  // 0: queries, keys and values; 1: attention and the matrix behind it; 2: gate and up, four rows of each; 3: down.
  __device__ __forceinline__ void send_stage(const StackLayer& layer, int stage) {
    if (stage == 1) send_context(layer);
    if (stage % 2 == 0) send_gain(stage == 0 ? layer.mixer_gain : layer.ffn_gain);
    const int dim = static_cast<int>(p_.x.dim), heads = p_.heads * Dim;
    const int columns = stage == 1 ? heads : stage == 3 ? p_.inner : dim;
    const Share share = Share::of(stage == 0   ? (heads + 2 * p_.kv_heads * Dim) / 8
                                  : stage == 2 ? p_.inner / 4
                                               : dim / 8);
    const void* const matrix = stage == 0   ? layer.qkv
                               : stage == 1 ? layer.out
                               : stage == 2 ? layer.gate_up
                                            : layer.down;
    const int64_t each = static_cast<int64_t>(stage == 2 ? 4 : 8) * columns;
    const int64_t high = static_cast<int64_t>(stage == 2 ? p_.inner : 4) * columns;
    const bf16* const first = static_cast<const bf16*>(matrix) + share.first * each;
    const int chunks = (columns + kChunk - 1) / kChunk;
    const bool by_chunk = chunks > kResident;
    const int outer = by_chunk ? chunks : share.count, inner = by_chunk ? share.count : chunks;
#pragma unroll 1
    for (int i = 0; i < outer; ++i) {
#pragma unroll 1
      for (int j = 0; j < inner; ++j) {
        const int group = by_chunk ? j : i, column = (by_chunk ? i : j) * kChunk;
        const bf16* at = first + group * each + column;
        send_rows(at, at + high, columns, min(kChunk, columns - column));
      }
    }
  }

  const StackParams& p_;
  const Plan& plan_;
  Cursor cursor_;
  uint64_t policy_;
};

}  // namespace sluice::kernels::cuda::stack

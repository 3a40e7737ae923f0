// The warp of decode_attention.cu that brings keys, values and queries to shared memory.
#pragma once

#include "kernels/cuda/attention/decode_attention_mma.cuh"
#include "kernels/cuda/common/tma.cuh"

namespace sluice::kernels::cuda {

// The producer waits until the other warps have brought the step's arrays to shared memory.
__device__ __forceinline__ void signal_arrays_loaded() {
  asm volatile("bar.arrive 2, %0;" ::"n"(kThreads) : "memory");
}
__device__ __forceinline__ void await_arrays() {
  asm volatile("bar.sync 2, %0;" ::"n"(kThreads) : "memory");
}

// The producer warp: fills the ring with the units of the block's ranges, and tells the other warps the pieces. All lanes
// do the same, but that each holds one entry of the block table; an elected one asks for the copies.
template <class L>
struct OneProducer {
  static constexpr int Dim = L::kDim;
  const OneArguments& p;
  const Ranges ranges;
  const int *positions, *first_unit;
  Piece* pieces;
  uint32_t shared, full, empty, piece_full, piece_empty;
  uint64_t policy = read_once_policy();
  int lane = threadIdx.x % 32;
  int stage = 0, round = 0, told = 0;
  bool arrays = false;
  int position = 0, row = 0;  // of the token whose units are sent
  // Where blocks start in the cache, in bytes: of 32 entries of the row, from entry `held` on, one to a lane.
  int held = -1;
  int64_t offset = 0;

  __device__ __forceinline__ OneProducer(const OneArguments& arguments, const Ranges& all, uint8_t* memory)
      : p(arguments),
        ranges(all),
        positions(reinterpret_cast<int*>(memory + L::kPositions)),
        first_unit(reinterpret_cast<int*>(memory + L::kFirstUnit)),
        pieces(reinterpret_cast<Piece*>(memory + L::kPieces)),
        shared(shared_address(memory)),
        full(shared + L::kBarriers),
        empty(full + 8 * L::kStages),
        piece_full(empty + 8 * L::kStages),
        piece_empty(piece_full + 8 * kPieceSlots) {}

  __device__ __forceinline__ void need_arrays() {
    if (!arrays) await_arrays();
    arrays = true;
  }
  // The slot of the next piece to tell, once it is free.
  __device__ __forceinline__ int free_slot() {
    const int slot = told % kPieceSlots;
    if (told >= kPieceSlots) barrier_wait(piece_empty + 8 * slot, (told / kPieceSlots - 1) & 1);
    ++told;
    return slot;
  }
  // A piece, with its queries.
  __device__ __forceinline__ void push_work(const Piece& piece) {
    const int slot = free_slot();
    const auto bytes = static_cast<uint32_t>(p.group * Dim * 2);
    if (one_lane()) {
      pieces[slot] = piece;
      barrier_expect(piece_full + 8 * slot, bytes);
      copy_bytes(shared + L::kQueries + slot * L::kQueryBytes,
                 p.q + piece.token * p.q_stride + int64_t{piece.head} * p.group * Dim, bytes,
                 piece_full + 8 * slot);
    }
    __syncwarp();
  }
  __device__ __forceinline__ void tell_end() {
    const int slot = free_slot();
    if (!one_lane()) return;
    pieces[slot].count = 0;
    barrier_arrive(piece_full + 8 * slot);
  }

  // Keys and values of a unit of the token's kv head. Those in quarters that begin behind the token are left out.
  __device__ __forceinline__ void send_unit(int unit, int head) {
    constexpr int kQuarter = kKeys / 4, kRuns = L::kRuns / 4;  // keys, runs
    const int block_size = p.table.block_size, held_by_lanes = (unit * kKeys >> p.block_shift) & ~31;
    if (held != held_by_lanes) {
      held = held_by_lanes;
      offset = p.table.blocks[row + min(held + lane, position >> p.block_shift)] * p.stride_block;
    }
    int64_t from[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = min(unit * kKeys + i * kQuarter, position);
      from[i] = __shfl_sync(0xffffffffu, offset, key >> p.block_shift & 31) + head * p.stride_head +
                (key & (block_size - kQuarter)) * L::kRowBytes;
    }
    const int quarters = min(4, (position - unit * kKeys) / kQuarter + 1);
    if (round > 0) barrier_wait(empty + 8 * stage, (round - 1) & 1);
    const uint32_t barrier = full + 8 * stage, to = shared + stage * L::kStageBytes;
    if (one_lane()) {
      barrier_expect(barrier, 2 * quarters * kQuarter * L::kRowBytes);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i >= quarters) break;
#pragma unroll
        for (int j = 0; j < kRuns; ++j) {
          const uint32_t at = to + (i * kRuns + j) * L::kRunPitch;
          const int64_t source = from[i] + j * L::kRunBytes;
          copy_bytes(at, p.keys + source, L::kRunBytes, barrier, policy);
          copy_bytes(at + L::kMatrixBytes, p.values + source, L::kRunBytes, barrier, policy);
        }
      }
    }
    __syncwarp();
    if (++stage == L::kStages) stage = 0, ++round;
  }

  // The next unit is of a token at `at`, whose row of the table starts with entry `first`.
  __device__ __forceinline__ void turn_to(int at, int first) {
    position = at, row = first, held = -1;
  }
  // Units of the first head of `walk` that earlier steps have completed, as many as the ring holds. The kernels that write
  // keys and values wait for what is in front of them before they allow dependents: what earlier steps wrote is there when
  // this kernel starts. Returns how many.
  __device__ __forceinline__ int send_ahead(const Walk& walk) {
    const int begin = first_key(position, p.window) / kKeys + walk.unit;
    const int most =
        p.ahead != 0 && walk.live() ? min(min(walk.count(), L::kStages), position / kKeys - begin) : 0;
    for (int i = 0; i < most; ++i) send_unit(begin + i, walk.head);
    return max(most, 0);
  }
  // The units of a range, from the token on that was turned to, but for the first `sent`.
  __device__ __forceinline__ void send_range(int range, Walk walk, int sent) {
    int token = walk.token;
    while (walk.live()) {
      if (walk.token != token) {
        token = walk.token;
        turn_to(positions[token], p.table.row_begin[p.table.sequence[token]]);
      }
      push_work(
          {token, walk.head, walk.unit, walk.units, walk.count(), range, walk.at - walk.unit, position});
      const int begin = first_key(position, p.window) / kKeys + walk.unit, end = begin + walk.count();
      for (int unit = begin + sent; unit < end; ++unit) send_unit(unit, walk.head);
      sent = 0;
      if (walk.head + 1 == p.kv_heads) need_arrays();
      walk.next(first_unit, p.kv_heads);
    }
  }
  // The next of the short ranges, if there is one. Who asks in vain after all others sets the counters back.
  __device__ __forceinline__ int take_range() {
    int32_t taken = 0;
    if (lane == 0) taken = atomicAdd(p.tickets, 1);
    const int range = ranges.own.parts + __shfl_sync(0xffffffffu, taken, 0);
    if (range >= ranges.count && lane == 0 && atomicAdd(p.tickets + 1, 1) == ranges.own.parts - 1)
      p.tickets[0] = p.tickets[1] = 0;
    return range;
  }

  __device__ __forceinline__ void run(const DecodeAttentionStart& start) {
    const bool more = ranges.count > ranges.own.parts;
    int range = static_cast<int>(blockIdx.x);
    Walk walk = start.walk;
    turn_to(start.position, start.row);
    int sent = send_ahead(walk);
    wait_for_producer();  // of the queries and the new keys
    while (range < ranges.count) {
      send_range(range, walk, sent);
      sent = 0;
      need_arrays();
      range = more ? take_range() : ranges.count;
      if (range >= ranges.count) break;
      walk = Walk::from(first_unit, p.tokens, p.kv_heads, ranges.start_of_short(range),
                        ranges.start_of_short(range + 1));
      turn_to(positions[walk.token], p.table.row_begin[p.table.sequence[walk.token]]);
    }
    tell_end();
  }
};

}  // namespace sluice::kernels::cuda

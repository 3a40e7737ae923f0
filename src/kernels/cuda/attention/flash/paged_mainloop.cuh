// Keys and values of a paged cache for FlashInfer's attention on Hopper, by the TMA unit: what FlashInfer's own paged loader
// does with copies of 16 bytes by a whole warpgroup. Heads of 128 elements whose slots lie together within a block.
#pragma once

#include "kernels/cuda/attention/flash/flash_hopper.cuh"
#include "kernels/cuda/common/tma.cuh"

namespace sluice::kernels::cuda {

// A "collective mainloop" as flashinfer::PrefillWithKVCacheKernel takes one.
template <class Traits, bool kCausal>
struct PagedMainloop {
  using Ragged = flashinfer::CollectiveMainloop<HopperParams::AdditionalParams, Traits, kCausal>;
  using TmaQ = typename Ragged::TMA_Q;
  using LayoutT = typename Ragged::LayoutT;
  using MainloopPipeline = typename Traits::MainloopPipeline;
  using PipelineState = typename MainloopPipeline::PipelineState;
  using WarpScheduler = typename Ragged::WarpScheduler;
  static constexpr bool USE_TMA_LOAD_KV = true;
  static constexpr uint32_t TmaTransactionBytesK = Ragged::TmaTransactionBytesK,
                            TmaTransactionBytesV = Ragged::TmaTransactionBytesV;
  static constexpr int kKeys = Traits::CTA_KV, kDim = Traits::HEAD_DIM_QK;
  // A tile in shared memory: halves of 64 elements, each with its keys' rows of 128 bytes one after the other.
  static constexpr int kHalfBytes = kKeys * 128, kTileBytes = 2 * kHalfBytes;
  static_assert(kDim == 128 && kTileBytes == static_cast<int>(TmaTransactionBytesK));

  struct Params {
    CUtensorMap keys,
        values;  // [rows, 128] of all heads of all blocks, in boxes of `box` rows and 64 elements
    LayoutT layout_Q;
    TmaQ tma_load_Q;
    const int32_t* blocks;
    const cutlass::bfloat16_t* value_data;
    int block_size, box, heads;  // heads: from a block's first row to the next one's, in heads
    int window_left;
    HopperParams::AdditionalParams additional_params;
  };

  CUTLASS_DEVICE static void prefetch_tma_descriptors(const Params& p) {
    cute::prefetch_tma_descriptor(p.tma_load_Q.get_tma_descriptor());
    cute::prefetch_tma_descriptor(reinterpret_cast<const cute::TmaDescriptor*>(&p.keys));
    cute::prefetch_tma_descriptor(reinterpret_cast<const cute::TmaDescriptor*>(&p.values));
  }

  CUTLASS_DEVICE int get_num_kv_tiles(const Params&, int q_tile, int queries, int keys) {
    const int all = (keys + kKeys - 1) / kKeys, seen = (q_tile + 1) * Traits::CTA_Q + keys - queries;
    return kCausal ? min(all, (seen + kKeys - 1) / kKeys) : all;
  }

  // Where a sequence's boxes begin, of 32 of them at a time, one to a lane.
  struct Rows {
    const Params& p;
    const int32_t* blocks;  // of the sequence
    int head, keys;
    int held = -1, row = 0;

    CUTLASS_DEVICE int of(int box) {
      if (held != box / 32) {
        held = box / 32;
        const int key =
            min((held * 32 + static_cast<int>(threadIdx.x % 32)) * p.box, (keys - 1) / p.box * p.box);
        row = (__ldg(blocks + key / p.block_size) * p.heads + head) * p.block_size + key % p.block_size;
      }
      return __shfl_sync(0xffffffffu, row, box % 32);
    }
  };

  // All lanes call it; the elected one asks for the copies.
  CUTLASS_DEVICE static void load_tile(const CUtensorMap* map, Rows& rows, int tile, uint32_t to,
                                       uint32_t barrier, bool elected) {
    const int boxes = kKeys / rows.p.box;
    for (int i = 0; i < boxes; ++i) {
      const int row = rows.of(tile * boxes + i);
      const uint32_t at = to + i * rows.p.box * 128;
      if (!elected) continue;
      tma_load_2d(at, map, 0, row, barrier);
      tma_load_2d(at + kHalfBytes, map, 64, row, barrier);
    }
  }

  // The last tile of values, zero from the last key on: a weight of zero does not hide what is no number there.
  CUTLASS_DEVICE static void load_last_values(Rows& rows, int tile, uint32_t to, uint32_t barrier,
                                              bool elected) {
    const int lane = static_cast<int>(threadIdx.x % 32), boxes = kKeys / rows.p.box;
    for (int i = 0; i < boxes; ++i) {
      const int row = rows.of(tile * boxes + i), first = i * rows.p.box;
      for (int piece = lane; piece < rows.p.box * 16; piece += 32) {
        const int key = first + piece / 16, column = piece % 16;
        const uint32_t at = to + column / 8 * kHalfBytes + key * 128 + ((column % 8) ^ (key % 8)) * 16;
        const auto* from = rows.p.value_data + int64_t{row + piece / 16} * kDim + column * 8;
        const int bytes = tile * kKeys + key < rows.keys ? 16 : 0;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes)
                     : "memory");
      }
    }
    asm volatile("cp.async.wait_all;\nfence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (elected)
      asm volatile("mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;" ::"r"(barrier),
                   "r"(static_cast<uint32_t>(kTileBytes))
                   : "memory");
  }

  template <bool kWindow, class BlockCoord, class Scheduler, class SharedStorage>
  CUTLASS_DEVICE void load(const Params& p, MainloopPipeline pipeline_k, MainloopPipeline pipeline_v,
                           PipelineState& write_k, PipelineState& write_v, SharedStorage& shared,
                           Scheduler& scheduler, const typename Scheduler::Params& scheduler_params,
                           typename Scheduler::WorkTileInfo& work, const BlockCoord& coord, int work_index) {
    static_assert(!kWindow);
    const int q_tile = cute::get<0>(coord), q_head = cute::get<1>(coord), q_begin = cute::get<3>(coord),
              queries = cute::get<5>(coord), keys = cute::get<6>(coord);
    Rows rows{p, p.blocks + cute::get<4>(coord), cute::get<2>(coord), keys};
    const bool elected = cute::elect_one_sync() != 0;
    const auto barrier_of = [](MainloopPipeline& pipeline, PipelineState& state) {
      return shared_address(pipeline.producer_get_barrier(state));
    };
    const auto load_keys = [&](int tile) {
      if (elected) pipeline_k.producer_acquire(write_k);
      load_tile(&p.keys, rows, tile, shared_address(shared.smem_k.data()) + write_k.index() * kTileBytes,
                barrier_of(pipeline_k, write_k), elected);
      ++write_k;
    };
    const auto load_values = [&](int tile) {
      if (elected) pipeline_v.producer_acquire(write_v);
      __syncwarp();
      const uint32_t to = shared_address(shared.smem_v.data()) + write_v.index() * kTileBytes;
      if ((tile + 1) * kKeys > keys) {
        load_last_values(rows, tile, to, barrier_of(pipeline_v, write_v), elected);
      } else {
        load_tile(&p.values, rows, tile, to, barrier_of(pipeline_v, write_v), elected);
      }
      ++write_v;
    };
    int tile = get_num_kv_tiles(p, q_tile, queries, keys) - 1;
    load_keys(tile);
    cutlass::arch::NamedBarrier::sync(Traits::NUM_MMA_THREADS + Traits::NUM_PRODUCER_THREADS,
                                      static_cast<int>(flashinfer::NamedBarriers::kQueryEmpty));
    if (elected) load_queries(p, shared, q_tile, q_head, q_begin, queries);
    shared.barrier_O.wait((work_index + 1) % 2);
    for (; tile > 0; --tile) {
      load_keys(tile - 1);
      load_values(tile);
    }
    scheduler.prefetch_next_work(scheduler_params, work);
    load_values(0);
    scheduler.broadcast_next_work(work);
  }

  template <class SharedStorage>
  CUTLASS_DEVICE static void load_queries(const Params& p, SharedStorage& shared, int q_tile, int q_head,
                                          int q_begin, int queries) {
    using namespace cute;
    Tensor all = p.tma_load_Q.get_tma_tensor(p.layout_Q.shape());
    Tensor from = flashinfer::get_local_tile_tensor(all, select<0, 2>(typename Traits::TileShape_QKD{}),
                                                    q_head, q_begin, queries)(_, _, q_tile);
    Tensor to = make_tensor(make_smem_ptr(shared.smem_q.data()), typename Traits::SmemLayoutQ{});
    Tensor to_x = make_tensor(to.data(), make_layout(to.layout(), Layout<_1>{}));
    Tensor from_x = make_tensor(from.data(), make_layout(from.layout(), Layout<_1>{}));
    auto [source, target] =
        tma_partition(p.tma_load_Q, _0{}, Layout<_1>{}, group_modes<0, 2>(to_x), group_modes<0, 2>(from_x));
    shared.barrier_Q.arrive_and_expect_tx(Ragged::TmaTransactionBytesQ);
    copy(p.tma_load_Q.with(
             reinterpret_cast<cutlass::arch::ClusterTransactionBarrier::ValueType&>(shared.barrier_Q), 0),
         source, target);
  }

  CUTLASS_DEVICE void load_tail(MainloopPipeline pipeline_k, MainloopPipeline pipeline_v,
                                PipelineState& write_k, PipelineState& write_v) {
    if (!cute::elect_one_sync()) return;
    pipeline_k.producer_tail(write_k);
    pipeline_v.producer_tail(write_v);
  }
};

}  // namespace sluice::kernels::cuda

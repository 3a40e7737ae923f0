// Attention of long runs of new tokens on Hopper's own matrix instructions: FlashInfer's kernel for sm_90a, causal over the
// paged cache, heads of 128 elements here and of 256 in flash_hopper_256.cu. 316 us for 4 x 2,048 tokens, 32/8 heads of 128,
// where the general kernel takes 492 (H200).
#include <algorithm>

#include "kernels/cuda/attention/flash/paged_mainloop.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kTile = 128;
constexpr int64_t kMostTilesPerHead = 4096;  // above, FlashInfer plans differently
constexpr int64_t kFewestTokens = 128;  // per sequence; below, the general kernel splits contexts and wins

// Blocks whose heads' slots lie together, in boxes of up to 64 of them.
bool paged_fits(const AttentionParams& p) {
  const int64_t size = p.table.block_size;
  const auto fits = [&](const CacheView& c) {
    return c.stride_slot == 128 && c.stride_head == size * 128 && c.stride_block % c.stride_head == 0;
  };
  return (size == 16 || size == 32 || size % 64 == 0) && fits(p.k) && fits(p.v) &&
         p.k.blocks * p.k.stride_block / 128 < (int64_t{1} << 31);
}

using PagedTraits =
    flashinfer::AttentionKernelTraits<true, 128, 128, kTile, 128, 2, cutlass::bfloat16_t, cutlass::bfloat16_t,
                                      cutlass::bfloat16_t, int32_t, flashinfer::StandardAttention>;
using Paged = PagedMainloop<PagedTraits, true>;

Paged::Params paged_params(const AttentionParams& a, const HopperParams& h) {
  const int64_t box = std::min<int64_t>(a.table.block_size, 64);
  const auto map_of = [&](const CacheView& c) {
    const auto rows = static_cast<uint64_t>(c.blocks * c.stride_block / 128);
    return make_tensor_map(c.data, {2, {128, rows}, {256}, {64, static_cast<uint32_t>(box)}});
  };
  const auto layout = flashinfer::get_gmem_layout(h.nnz_qo, h.num_qo_heads, 128, h.q_stride_n, h.q_stride_h);
  const cute::Tensor queries = cute::make_tensor(cute::make_gmem_ptr(h.q_ptr), layout);
  return {map_of(a.k),
          map_of(a.v),
          layout,
          cute::make_tma_copy(cute::SM90_TMA_LOAD{}, queries, PagedTraits::SmemLayoutQ{},
                              cute::select<0, 2>(PagedTraits::TileShape_QKD{}), cute::_1{}),
          a.table.blocks,
          h.v_ptr,
          static_cast<int>(a.table.block_size),
          static_cast<int>(box),
          static_cast<int>(a.k.stride_block / a.k.stride_head),
          -1,
          h.additional_params};
}

void launch_paged(const FlashParams& p, const HopperParams& h, Stream stream) {
  using Epilogue = flashinfer::CollectiveEpilogue<PagedTraits>;
  using Scheduler = flashinfer::BatchPrefillPersistentTileScheduler<int32_t>;
  const auto epilogue = Epilogue::to_underlying_arguments(
      {h.o_ptr, flashinfer::get_gmem_layout(h.nnz_qo, h.num_qo_heads, 128, h.o_stride_n, h.o_stride_h),
       h.lse_ptr, flashinfer::get_lse_gmem_layout(h.nnz_qo, h.num_qo_heads)});
  const auto schedule = Scheduler::to_underlying_arguments(
      {h.work_indptr, h.head_indices, h.qo_tile_indices, h.qo_indptr, h.kv_indptr, h.qo_lens, h.kv_lens,
       h.batch_indices, cutlass::FastDivmod(static_cast<int>(h.num_qo_heads / h.num_kv_heads)),
       static_cast<int>(h.num_qo_heads)});
  const auto kernel =
      flashinfer::PrefillWithKVCacheKernel<Paged, Epilogue, PagedTraits, false, true, Scheduler>;
  constexpr int kShared = sizeof(PagedTraits::SharedStorage);
  static const cudaError_t attribute =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  check_launch(attribute, "flash attention on Hopper");
  static const int processors = multiprocessors();
  const Paged::Params mainloop = paged_params(p.attention, h);
  kernel<<<static_cast<unsigned>(processors), PagedTraits::NUM_THREADS, kShared, stream>>>(mainloop, epilogue,
                                                                                           schedule);
  check_launch(cudaGetLastError(), "flash attention on Hopper");
}

}  // namespace

bool hopper_fits(const AttentionParams& p, int64_t sequences) {
  return features().hopper && p.k.type == DType::BF16 && (p.k.dim == 128 || p.k.dim == 256) &&
         p.window == 0 && p.softcap == 0.0f && p.q.n >= kFewestTokens * sequences &&
         p.q.n / kTile + sequences <= kMostTilesPerHead && p.k.stride_block == p.v.stride_block &&
         p.k.stride_slot == p.v.stride_slot && p.k.stride_head == p.v.stride_head;
}

size_t hopper_schedule_bytes(const FlashShape& shape, int64_t tokens, int64_t sequences, int64_t processors) {
  const int64_t works = shape.heads * (tokens / kTile + sequences + 1);
  return static_cast<size_t>(works * 7 * 4 + (processors + 1) * 4 + 16 * 64);
}

FlashPlan make_hopper_plan(const FlashWorkspace& workspace, const FlashShape& shape, const FlashBatch& batch,
                           Stream stream) {
  flashinfer::PrefillPlanSM90Info info;
  check_launch(flashinfer::PrefillSM90Plan<int32_t>(
                   workspace.partial, workspace.partial_bytes, workspace.schedule, workspace.staging,
                   workspace.schedule_bytes, info, const_cast<int32_t*>(batch.query_begin),
                   const_cast<int32_t*>(batch.row_begin), const_cast<int32_t*>(batch.lengths),
                   static_cast<uint32_t>(batch.tokens), static_cast<uint32_t>(batch.sequences),
                   static_cast<uint32_t>(shape.heads), static_cast<uint32_t>(shape.kv_heads),
                   static_cast<uint32_t>(shape.dim), static_cast<uint32_t>(shape.dim),
                   static_cast<uint32_t>(shape.block_size), true, false, sizeof(bf16), stream),
               "flash attention plan");
  check_launch(info.same_schedule_for_all_heads ? cudaErrorNotSupported : cudaSuccess,
               "flash attention plan");
  FlashPlan plan{};
  const auto fields = info.ToVector();
  check_launch(fields.size() <= 15 ? cudaSuccess : cudaErrorUnknown, "flash attention plan");
  std::copy(fields.begin(), fields.end(), plan.fields);
  return plan;
}

void launch_hopper(const FlashParams& p, Stream stream) {
  if (p.attention.k.dim == 256) return launch_hopper_256(p, stream);
  HopperParams arguments = hopper_params(p);
  if (paged_fits(p.attention)) return launch_paged(p, arguments, stream);
  check_launch(
      flashinfer::BatchPrefillWithPagedKVCacheDispatched<128, 128, flashinfer::MaskMode::kCausal, false,
                                                         false, flashinfer::StandardAttention>(arguments,
                                                                                               false, stream),
      "flash attention on Hopper");
}

}  // namespace sluice::kernels::cuda

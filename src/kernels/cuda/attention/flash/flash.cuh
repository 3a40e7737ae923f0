// How a FlashParams becomes a call of FlashInfer's kernel. Included by one .cu per head size.
#pragma once

#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/attention/variants.cuh>

#include "kernels/cuda/attention/flash/flash.h"
#include "kernels/cuda/common/device.cuh"

namespace sluice::kernels::cuda {

template <class Cache>
using FlashArguments = flashinfer::BatchPrefillPagedParams<bf16, Cache, bf16, int32_t>;

template <int Dim, int Tile, class Variant, class Cache>
void call_flash(FlashArguments<Cache>& arguments, bf16* partial, float* sums, Stream stream) {
  using flashinfer::MaskMode;
  using flashinfer::PosEncodingMode;
  check_launch(
      flashinfer::BatchPrefillWithPagedKVCacheDispatched<Tile, Dim, Dim, PosEncodingMode::kNone, false,
                                                         MaskMode::kCausal, Variant, FlashArguments<Cache>>(
          arguments, partial, sums, features().early_launch, stream),
      "flash attention");
}

template <int Dim, class Cache>
FlashArguments<Cache> flash_arguments(const FlashParams& p, const flashinfer::PrefillPlanInfo& plan) {
  const AttentionParams& a = p.attention;
  const auto index = [](const int32_t* pointer) { return const_cast<int32_t*>(pointer); };
  const int64_t k_strides[3] = {a.k.stride_block, a.k.stride_slot, a.k.stride_head};
  const int64_t v_strides[3] = {a.v.stride_block, a.v.stride_slot, a.v.stride_head};
  flashinfer::paged_kv_t<Cache, int32_t> cache(
      static_cast<uint32_t>(a.kv_heads), static_cast<uint32_t>(a.table.block_size), Dim,
      static_cast<uint32_t>(p.sequences), flashinfer::QKVLayout::kNHD, static_cast<Cache*>(a.k.data),
      static_cast<Cache*>(a.v.data), k_strides, v_strides, index(a.table.blocks), index(a.table.row_begin),
      index(p.last_length));
  FlashArguments<Cache> arguments(static_cast<bf16*>(a.q.data), cache, nullptr, index(p.query_begin), nullptr,
                                  nullptr, static_cast<bf16*>(a.out.data), nullptr, nullptr,
                                  static_cast<uint32_t>(a.q.heads), static_cast<int32_t>(a.q.stride_n),
                                  static_cast<int32_t>(a.q.stride_h), a.window > 0 ? a.window - 1 : -1,
                                  a.softcap, a.scale, 1.0f, 1e4f);
  const auto entry = [&](int64_t offset) {
    return flashinfer::GetPtrFromBaseOffset<int32_t>(p.schedule, offset);
  };
  arguments.request_indices = entry(plan.request_indices_offset);
  arguments.qo_tile_indices = entry(plan.qo_tile_indices_offset);
  arguments.kv_tile_indices = entry(plan.kv_tile_indices_offset);
  arguments.o_indptr = entry(plan.o_indptr_offset);
  arguments.kv_chunk_size_ptr = entry(plan.kv_chunk_size_ptr_offset);
  arguments.padded_batch_size = static_cast<uint32_t>(plan.padded_batch_size);
  arguments.max_total_num_rows = static_cast<uint32_t>(plan.total_num_rows);
  if (plan.enable_cuda_graph)
    arguments.total_num_rows =
        flashinfer::GetPtrFromBaseOffset<uint32_t>(p.schedule, plan.total_num_rows_offset);
  if (plan.split_kv) {
    arguments.merge_indptr = entry(plan.merge_indptr_offset);
    if (plan.enable_cuda_graph)
      arguments.block_valid_mask =
          flashinfer::GetPtrFromBaseOffset<bool>(p.schedule, plan.block_valid_mask_offset);
  }
  return arguments;
}

template <int Dim, class Cache, class Variant>
void launch_variant(const FlashParams& p, Stream stream) {
  flashinfer::PrefillPlanInfo plan;
  plan.FromVector(std::vector<int64_t>(p.plan.fields, p.plan.fields + 15));
  FlashArguments<Cache> arguments = flash_arguments<Dim, Cache>(p, plan);
  bf16* partial = plan.split_kv ? flashinfer::GetPtrFromBaseOffset<bf16>(p.partial, plan.v_offset) : nullptr;
  float* sums = plan.split_kv ? flashinfer::GetPtrFromBaseOffset<float>(p.partial, plan.s_offset) : nullptr;
  if (plan.cta_tile_q == 16) return call_flash<Dim, 16, Variant>(arguments, partial, sums, stream);
  if (plan.cta_tile_q == 64) return call_flash<Dim, 64, Variant>(arguments, partial, sums, stream);
  if constexpr (Dim < 256) {
    if (plan.cta_tile_q == 128) return call_flash<Dim, 128, Variant>(arguments, partial, sums, stream);
  }
  check_launch(cudaErrorNotSupported, "flash attention with this tile");
}

// Plain, windowed, and windowed (or not) with softcap.
template <int Dim, class Cache = bf16>
void launch_flash_dim(const FlashParams& p, Stream stream) {
  using Plain = flashinfer::DefaultAttention<false, false, false, false>;
  using Windowed = flashinfer::DefaultAttention<false, true, false, false>;
  using Capped = flashinfer::DefaultAttention<false, true, true, false>;
  if (p.attention.softcap > 0.0f) return launch_variant<Dim, Cache, Capped>(p, stream);
  if (p.attention.window > 0) return launch_variant<Dim, Cache, Windowed>(p, stream);
  launch_variant<Dim, Cache, Plain>(p, stream);
}

}  // namespace sluice::kernels::cuda

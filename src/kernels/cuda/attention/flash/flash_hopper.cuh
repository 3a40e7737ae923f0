// Attention of long runs of new tokens on Hopper's own matrix instructions: how FlashInfer's kernel for sm_90a is called.
#pragma once

#include <flashinfer/attention/hopper/default_params.cuh>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>
#include <flashinfer/attention/scheduler.cuh>

#include <vector>

#include "kernels/cuda/attention/flash/flash.h"
#include "kernels/cuda/common/device.cuh"

namespace sluice::kernels::cuda {

using HopperParams = flashinfer::BatchPrefillPagedParams<cutlass::bfloat16_t, cutlass::bfloat16_t,
                                                         cutlass::bfloat16_t, int32_t>;

inline HopperParams hopper_params(const FlashParams& p) {
  using Element = cutlass::bfloat16_t;
  flashinfer::PrefillPlanSM90Info plan;
  plan.FromVector(std::vector<int64_t>(p.plan.fields, p.plan.fields + 9));
  const AttentionParams& a = p.attention;
  const auto entry = [&](int64_t offset) {
    return flashinfer::GetPtrFromBaseOffset<int32_t>(p.schedule, offset);
  };
  HopperParams arguments{};
  arguments.qo_tile_indices = entry(plan.qo_tile_indices_offset);
  arguments.qo_indptr = entry(plan.qo_indptr_offset);
  arguments.kv_indptr = entry(plan.kv_indptr_offset);
  arguments.qo_lens = entry(plan.qo_len_offset);
  arguments.kv_lens = entry(plan.kv_len_offset);
  arguments.head_indices = entry(plan.head_indices_offset);
  arguments.work_indptr = entry(plan.work_indptr_offset);
  arguments.batch_indices = entry(plan.batch_indices_offset);
  arguments.additional_params = {};
  arguments.additional_params.sm_scale = a.scale;
  arguments.num_qo_heads = static_cast<uint32_t>(a.q.heads);
  arguments.num_kv_heads = static_cast<uint32_t>(a.kv_heads);
  arguments.group_size = static_cast<uint32_t>(a.q.heads / a.kv_heads);
  arguments.window_left = -1;
  arguments.causal = true;
  arguments.lse_ptr = nullptr;
  arguments.q_ptr = static_cast<Element*>(a.q.data);
  arguments.k_ptr = static_cast<Element*>(a.k.data);
  arguments.v_ptr = static_cast<Element*>(a.v.data);
  arguments.o_ptr = static_cast<Element*>(a.out.data);
  arguments.q_stride_n = a.q.stride_n;
  arguments.q_stride_h = a.q.stride_h;
  arguments.o_stride_n = a.out.stride_n;
  arguments.o_stride_h = a.out.stride_h;
  arguments.k_stride_n = arguments.v_stride_n = a.k.stride_slot;
  arguments.k_stride_h = arguments.v_stride_h = a.k.stride_head;
  arguments.k_page_stride = arguments.v_page_stride = a.k.stride_block;
  arguments.nnz_qo = static_cast<uint32_t>(a.q.n);
  arguments.page_size = a.table.block_size;
  arguments.kv_indices = const_cast<int32_t*>(a.table.blocks);
  return arguments;
}

}  // namespace sluice::kernels::cuda

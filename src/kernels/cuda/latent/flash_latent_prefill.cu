// Attention of long runs of new tokens with keys of 192 and values of 128 elements, on Hopper's own matrix instructions.
#include <flashinfer/attention/hopper/default_params.cuh>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>
#include <flashinfer/attention/scheduler.cuh>

#include <algorithm>

#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/latent/flash_latent.h"

namespace sluice::kernels::cuda {

FlashPlan make_expanded_plan(const FlashWorkspace& workspace, const FlashShape& shape,
                             const FlashBatch& batch, Stream stream) {
  flashinfer::PrefillPlanSM90Info info;
  check_launch(flashinfer::PrefillSM90Plan<int32_t>(
                   workspace.partial, workspace.partial_bytes, workspace.schedule, workspace.staging,
                   workspace.schedule_bytes, info, const_cast<int32_t*>(batch.query_begin),
                   const_cast<int32_t*>(batch.row_begin), const_cast<int32_t*>(batch.lengths),
                   static_cast<uint32_t>(batch.tokens), static_cast<uint32_t>(batch.sequences),
                   static_cast<uint32_t>(shape.heads), static_cast<uint32_t>(shape.heads), kExpandedKeyDim,
                   kExpandedValueDim, 1, true, false, sizeof(bf16), stream),
               "latent attention plan");
  check_launch(info.same_schedule_for_all_heads ? cudaErrorNotSupported : cudaSuccess,
               "latent attention plan");
  FlashPlan plan{};
  const auto fields = info.ToVector();
  check_launch(fields.size() <= 15 ? cudaSuccess : cudaErrorUnknown, "latent attention plan");
  std::copy(fields.begin(), fields.end(), plan.fields);
  return plan;
}

void launch_expanded(const ExpandedParams& p, Stream stream) {
  using Element = cutlass::bfloat16_t;
  flashinfer::PrefillPlanSM90Info plan;
  plan.FromVector(std::vector<int64_t>(p.plan.fields, p.plan.fields + 9));
  const auto entry = [&](int64_t offset) {
    return flashinfer::GetPtrFromBaseOffset<int32_t>(p.schedule, offset);
  };
  flashinfer::BatchPrefillRaggedParams<Element, Element, Element, int32_t> a{};
  a.qo_tile_indices = entry(plan.qo_tile_indices_offset);
  a.qo_indptr = entry(plan.qo_indptr_offset);
  a.kv_indptr = entry(plan.kv_indptr_offset);
  a.qo_lens = entry(plan.qo_len_offset);
  a.kv_lens = entry(plan.kv_len_offset);
  a.head_indices = entry(plan.head_indices_offset);
  a.work_indptr = entry(plan.work_indptr_offset);
  a.batch_indices = entry(plan.batch_indices_offset);
  a.additional_params = {};
  a.additional_params.sm_scale = p.scale;
  a.num_qo_heads = a.num_kv_heads = static_cast<int>(p.q.heads);
  a.group_size = 1;
  a.window_left = -1;
  a.causal = true;
  a.lse_ptr = nullptr;
  a.q_ptr = static_cast<Element*>(p.q.data);
  a.k_ptr = static_cast<Element*>(p.k.data);
  a.v_ptr = static_cast<Element*>(p.v.data);
  a.o_ptr = static_cast<Element*>(p.out.data);
  a.q_stride_n = p.q.stride_n;
  a.q_stride_h = p.q.stride_h;
  a.k_stride_n = p.k.stride_n;
  a.k_stride_h = p.k.stride_h;
  a.v_stride_n = p.v.stride_n;
  a.v_stride_h = p.v.stride_h;
  a.o_stride_n = p.out.stride_n;
  a.o_stride_h = p.out.stride_h;
  a.nnz_qo = p.q.n;
  a.nnz_kv = p.k.n;
  check_launch(
      flashinfer::BatchPrefillWithRaggedKVCacheDispatched<kExpandedKeyDim, kExpandedValueDim,
                                                          flashinfer::MaskMode::kCausal, false, false,
                                                          flashinfer::StandardAttention>(a, false, stream),
      "latent attention of keys and values");
}

}  // namespace sluice::kernels::cuda

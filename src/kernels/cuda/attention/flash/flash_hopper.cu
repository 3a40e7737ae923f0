// Attention of long runs of new tokens on Hopper's own matrix instructions: FlashInfer's kernel for sm_90a, causal over the
// paged cache, heads of 128 elements here and of 256 in flash_hopper_256.cu. 316 us for 4 x 2,048 tokens, 32/8 heads of 128,
// where the general kernel takes 492 (H200).
#include <algorithm>

#include "kernels/cuda/attention/flash/flash_hopper.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kTile = 128;
constexpr int64_t kMostTilesPerHead = 4096;  // above, FlashInfer plans differently
constexpr int64_t kFewestTokens = 128;  // per sequence; below, the general kernel splits contexts and wins

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
  check_launch(
      flashinfer::BatchPrefillWithPagedKVCacheDispatched<128, 128, flashinfer::MaskMode::kCausal, false,
                                                         false, flashinfer::StandardAttention>(arguments,
                                                                                               false, stream),
      "flash attention on Hopper");
}

}  // namespace sluice::kernels::cuda

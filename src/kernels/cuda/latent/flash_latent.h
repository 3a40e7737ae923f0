// Latent attention on tensor cores, FlashInfer's kernels: over the paged latents themselves, one KV head of 512 + 64
// elements for all query heads, on sm_90a and on any architecture; and, on sm_90a, over keys of 192 and values of 128
// elements that were made from the latents of whole contexts, for long runs of new tokens.
#pragma once

#include "kernels/cuda/attention/flash/flash.h"
#include "kernels/cuda/latent/latent_plan.h"

namespace sluice::kernels::cuda {

inline constexpr int64_t kLatentDim = 512, kLatentRopeDim = 64;  // of the cached vector
inline constexpr int64_t kExpandedKeyDim = 192, kExpandedValueDim = 128;

// out[n, heads, 512] = softmax(scale · q · latentᵀ) latent[:512] of each token over its own sequence, bf16 throughout.
struct LatentParams {
  View out, q;            // q: [n, heads, 512], in the latent space
  View q_rope;            // [n, heads, 64], rotated
  CacheView cache;        // dim 576, one head
  const int32_t* blocks;  // of the block table
  const int32_t* plan;    // of plan_latent(), on the device
  LatentPlanLayout layout;
  void* partial;  // latent_partial_bytes()
  float scale;
  int32_t block_size;
};
size_t latent_partial_bytes(const LatentPlanLayout&);
void launch_latent(const LatentParams&, Stream);
void launch_latent_sm90(const LatentParams&, Stream);

// out[n, heads, 128] of sequences whose keys and values lie one after the other.
struct ExpandedParams {
  View out, q;  // q: [n, heads, 192]
  View k, v;    // [contexts, heads, 192 and 128]
  FlashPlan plan;
  void* schedule;
  float scale;
};
// Bytes of the schedule: hopper_schedule_bytes().
FlashPlan make_expanded_plan(const FlashWorkspace&, const FlashShape&, const FlashBatch&, Stream);
void launch_expanded(const ExpandedParams&, Stream);

}  // namespace sluice::kernels::cuda

// Mixtures: routing, sorting by expert, and the feed-forward of few tokens.
#pragma once

#include "kernels/cuda/common/params.h"

namespace sluice::kernels::cuda {

struct RouteParams {
  int32_t* ids;    // [n, used + always]
  float* weights;  // likewise
  View logits;
  int64_t ids_stride, weights_stride;
  const float* choice_bias;
  const float* weight_scale;
  int32_t experts, used, groups, groups_used, group_best;
  int32_t always;  // slots behind the chosen ones, of the experts behind all others
  float scale, margin, always_weight;
  int32_t score;  // Routing::Score
  int32_t normalize;
  int32_t always_gated;  // always_weight times the sigmoid of the logit behind those of the experts
};
void launch_route(const RouteParams&, Stream);
// Whether the choice of a token is one warp's work: it can be made within the kernel that needs it.
bool routes_by_warp(const RouteParams&);
// Chosen for within another kernel, in every block of it: more take longer than a kernel of their own.
inline constexpr int64_t kMostRoutedTokens = 8;

// A whole feed-forward for few tokens. Matrices and biases: [experts] device pointers, biases or null.
struct FewExpertsParams {
  View out, x;
  void* active;     // [n * used, inner] of x's type
  Matrix up, down;  // shapes; data is null
  const void *const *up_matrices, *const *down_matrices;
  const float *const *up_biases, *const *down_biases;
  const int32_t* ids;    // [n, used]
  const float* weights;  // [n, used]
  int64_t ids_stride, weights_stride;
  int32_t used, activation;
  int32_t gated, weigh_inputs;
  float limit;  // ExpertBank::limit
  // Where few_bf16_fits():
  int32_t experts;  // matrices that there are
  int32_t always;   // the last of them, which every token uses
  int32_t added;    // out += instead of out =
};
bool few_experts_fit(const FewExpertsParams&);
void launch_few_experts(const FewExpertsParams&, Stream);
// Gated bf16 matrices in two halves: gate, up and activation, then down and the weighted sum.
bool few_bf16_fits(const FewExpertsParams&);
void launch_few_up_bf16(const FewExpertsParams&, Stream);
void launch_few_down_bf16(const FewExpertsParams&, Stream);

// Of the experts [first, first + count): ids become numbers among them, those of others any of them with weight zero.
struct OwnExpertsParams {
  int32_t* ids;    // [n, used]
  float* weights;  // [n, used]
  int64_t ids_stride, weights_stride;
  int64_t n;
  int32_t used, first, count;
};
void launch_own_experts(const OwnExpertsParams&, Stream);

// Sorts the n * used (token, slot) pairs by expert, keeping their order within an expert.
inline constexpr int64_t kMostGatheredTokens = 1024;  // of one expert
struct SortParams {
  const int32_t* ids;  // [n, used]
  int64_t ids_stride;
  int64_t n;
  int32_t used, experts;
  int32_t* begin;     // [experts + 1]
  int32_t* counters;  // [2], set to zero
  int32_t* tokens;    // [n * used] token of each sorted entry
  int32_t* place;     // [n * used] where pair (token, slot) went
  RouteParams route;  // f32 logits: ids and weights are made by it; null logits: they are there
  void* rows;         // bf16 [n * used, dim]: x of each sorted entry; or null
  View x;             // bf16, whole pieces of eight
};
void launch_sort(const SortParams&, Stream);

// out[place[t, slot]] = weights[t, slot] · x[t]
struct WeighParams {
  View out, x;
  const float* weights;
  int64_t weights_stride;
  const int32_t* place;
  int32_t used;
};
void launch_weigh(const WeighParams&, Stream);

// out[t] = Σ weights[t, slot] · x[place[t, slot]], in slot order
struct CombineParams {
  View out, x;
  const float* weights;  // null: 1
  int64_t weights_stride;
  const int32_t* place;
  int32_t used;
};
void launch_combine(const CombineParams&, Stream);

}  // namespace sluice::kernels::cuda

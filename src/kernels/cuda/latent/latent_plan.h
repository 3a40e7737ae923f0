// How attention over latents is shared out among clusters of blocks: which queries of which sequence over which part of its
// context. Contexts are split where that evens out the work; parts are merged at the end of the same launch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::kernels::cuda {

struct LatentSequence {
  int32_t query_begin, queries;  // tokens of the step
  int32_t row_begin;             // first entry of its row of the block table
  int32_t length;                // tokens of context, the new ones among them
};

// Where the arrays of a plan lie, in numbers from its start. Depends on the numbers of queries alone, not on the lengths.
struct LatentPlanLayout {
  int32_t cluster, clusters;  // blocks of a cluster; clusters of the launch
  int32_t works;              // room for so many
  int32_t heads, causal;      // causal: a sequence has several queries

  int32_t rows() const { return 64 * cluster; }  // (query, head) pairs of a work
  int32_t blocks() const { return cluster * clusters; }
  // Eight arrays [works], then the first work of each cluster [clusters + 1], then five arrays [blocks] of what is merged.
  int32_t work_array(int index) const { return index * works; }
  int32_t first_work() const { return 8 * works; }
  int32_t merge_array(int index) const { return first_work() + clusters + 1 + index * blocks(); }
  int32_t size() const { return merge_array(5); }
};

LatentPlanLayout latent_layout(std::span<const LatentSequence> sequences, int heads, int processors);
std::vector<int32_t> plan_latent(std::span<const LatentSequence> sequences, const LatentPlanLayout& layout);

}  // namespace sluice::kernels::cuda

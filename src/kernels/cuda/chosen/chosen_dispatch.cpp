#include "kernels/cuda/chosen/chosen_dispatch.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "kernels/cuda/common/views.h"

namespace sluice::kernels::cuda {

namespace {

constexpr int64_t kRankBytes = 32 << 20, kPartialBytes = 64 << 20;  // scratch of one launch
constexpr int64_t kTogether = 8;  // tokens that share keys in shared memory, of many

int64_t longest_seen(const RaggedBatch& batch) {
  int64_t last = 0;
  for (int64_t i = 0; i < batch.tokens(); ++i) last = std::max(last, batch.last_seen(i));
  return last + 1;
}

// Powers of two, so that a step comes back while its sequences grow.
int64_t rounded_up(int64_t count) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(count, 1))));
}

}  // namespace

void ChosenDispatch::choose_positions(TensorView chosen, const IndexQueries& queries, const PagedKv& keys,
                                      const RaggedBatch& batch) {
  choose(chosen.columns_as_heads(0, 1, chosen.dim(1)), queries, {.size = 1, .local = 0}, keys, batch);
}

void ChosenDispatch::choose_blocks(TensorView chosen, TensorView q, const BlockChoice& choice,
                                   const PagedKv& keys, const RaggedBatch& batch) {
  choose(chosen, {q, {}}, choice, keys, batch);
}

void ChosenDispatch::choose(TensorView chosen, const IndexQueries& queries, const BlockChoice& choice,
                            const PagedKv& keys, const RaggedBatch& batch) {
  SLUICE_CHECK(chosen.dtype == DType::I32 && chosen.stride[2] == 1);
  SLUICE_CHECK_EQ(keys.k.dim(2), 1);
  const int64_t n = chosen.dim(0), choices = chosen.dim(1), most = chosen.dim(2);
  if (n == 0) return;
  IndexScoresParams scores = blank<IndexScoresParams>();
  scores.columns = std::max<int64_t>(rounded_up((longest_seen(batch) - 1) / choice.size + 1), 64);
  scores.q = view_of(queries.q);
  if (!queries.weights.empty()) {
    SLUICE_CHECK(queries.weights.dtype == DType::F32);
    scores.weights = static_cast<const float*>(queries.weights.data);
    scores.weights_stride = queries.weights.stride[0];
  }
  scores.keys = cache_of(keys.k, keys.k_scales);
  scores.table = attention_.table_of(batch, keys).view;
  scores.all = most * choice.size;
  scores.size = choice.size;
  const int64_t row_bytes = choices * scores.columns * 4,
                at_once = std::clamp<int64_t>(kRankBytes / row_bytes, 1, n);
  scores.ranks = static_cast<uint32_t*>(ranks_.at_least(static_cast<size_t>(at_once * row_bytes)));
  scores.together = static_cast<int32_t>(at_once >= 8 * kTogether ? kTogether : 1);
  ChooseParams best = blank<ChooseParams>();
  best.chosen = static_cast<int32_t*>(chosen.data);
  best.stride_n = chosen.stride[0];
  best.stride_h = chosen.stride[1];
  best.ranks = scores.ranks;
  best.columns = scores.columns;
  best.table = scores.table;
  best.heads = static_cast<int32_t>(choices);
  best.most = static_cast<int32_t>(most);
  best.size = choice.size;
  best.local = choice.local;
  for (int64_t first = 0; first < n; first += at_once) {
    scores.first = best.first = first;
    scores.count = best.count = std::min(at_once, n - first);
    step_.issue(launch_index_scores, scores);
    step_.issue(launch_choose, best);
  }
}

void ChosenDispatch::attend(TensorView out, TensorView q, const ChosenKeys& keys, const RaggedBatch& batch,
                            const AttentionShape& shape) {
  SLUICE_CHECK(shape.window == 0 && shape.alibi.empty());
  SLUICE_CHECK(keys.blocks.dtype == DType::I32 && keys.blocks.stride[2] == 1);
  const int64_t n = q.dim(0), most = keys.blocks.dim(2);
  if (n == 0) return;
  ChosenAttentionParams p = blank<ChosenAttentionParams>();
  p.out = view_of(out);
  p.q = view_of(q);
  p.k = cache_of(keys.kv.k, keys.kv.k_scales);
  p.v = cache_of(keys.kv.v, keys.kv.v_scales);
  p.k.dim = shape.key_dim;
  p.v.dim = shape.value_dim;
  p.table = attention_.table_of(batch, keys.kv).view;
  p.sinks = floats_of(shape.sinks, shape.heads);
  p.blocks = static_cast<const int32_t*>(keys.blocks.data);
  p.stride_n = keys.blocks.stride[0];
  p.stride_c = keys.blocks.stride[1];
  p.kv_heads = shape.kv_heads;
  p.scale = shape.scale;
  p.softcap = shape.softcap;
  p.choices = static_cast<int32_t>(keys.blocks.dim(1));
  p.most = static_cast<int32_t>(most);
  p.size = keys.size;
  const int64_t places = std::min(most * keys.size, longest_seen(batch));
  p.parts = static_cast<int32_t>(rounded_up((places - 1) / kChosenPart + 1));
  const int64_t row_bytes = int64_t{shape.heads} * p.parts * (shape.value_dim + 2) * 4,
                at_once = std::clamp<int64_t>(kPartialBytes / row_bytes, 1, n);
  p.partial = static_cast<float*>(partial_.at_least(static_cast<size_t>(at_once * row_bytes)));
  for (int64_t first = 0; first < n; first += at_once) {
    p.first = first;
    p.count = std::min(at_once, n - first);
    step_.issue(launch_chosen_attention, p);
  }
}

}  // namespace sluice::kernels::cuda

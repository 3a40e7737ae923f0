// Attention of steps whose sums do not depend on what else is in them.
#include <algorithm>

#include "kernels/cuda/attention/attention_dispatch.h"
#include "kernels/cuda/attention/packed_attention.h"

namespace sluice::kernels::cuda {

// It does not matter with which others a token runs: it is by itself, or has the same bits as if it were.
void AttentionDispatch::attend_fixed(const AttentionParams& whole, const Table& table) {
  const int64_t single = batch_.consecutive ? batch_.singles : whole.q.n;
  if (!attend_each(whole, table, single)) return attend_tiles(whole, 0);
  if (single == whole.q.n) return;
  const PackedPlan& plan = packed_plan(table, packed_tokens(whole));
  PackedAttentionParams p = blank<PackedAttentionParams>();
  p.attention = whole;
  p.packs = plan.packs;
  p.count = plan.count;
  step_.issue(launch_packed, p);
}

// The first tokens, every one by itself. False, and nothing done, where no kernel for that takes the shape.
bool AttentionDispatch::attend_each(const AttentionParams& whole, const Table& table, int64_t count) {
  constexpr int64_t kTogether = 1024;
  AttentionParams one_token = whole;
  one_token.q.n = one_token.out.n = 1;
  if (!packed_fits(one_token)) return false;
  for (int64_t first = 0; first < count; first += kTogether) {
    DecodeAttentionParams one = blank<DecodeAttentionParams>();
    one.workspace = decode_workspace_.get();
    one.attention = without_first(whole, first);
    one.attention.q.n = one.attention.out.n = std::min(kTogether, count - first);
    one.plan =
        one_plan({&table, static_cast<int>(whole.kv_heads), whole.window, first, one.attention.q.n, true});
    step_.issue(launch_one, one);
  }
  return true;
}

// Sequence after sequence, so that packs that run at a time read the same keys; of each the longest first.
const AttentionDispatch::PackedPlan& AttentionDispatch::packed_plan(const Table& table, int64_t tokens) {
  for (const PackedPlan& plan : batch_.packed_plans)
    if (plan.table == &table && plan.tokens == tokens) return plan;
  std::vector<int32_t> numbers;
  const auto most = static_cast<int32_t>(tokens);
  for (auto s = static_cast<size_t>(batch_.singles); s < static_cast<size_t>(batch_.sequences); ++s) {
    const int32_t begin = batch_.query_begin_host[s];
    for (int32_t end = batch_.query_begin_host[s + 1]; end > begin; end = std::max(end - most, begin)) {
      const int32_t first = std::max(end - most, begin);
      const int32_t position = batch_.positions_host[static_cast<size_t>(first)];
      numbers.insert(numbers.end(), {first, end - first, position, table.row_begin[s]});
    }
  }
  const auto count = static_cast<int64_t>(numbers.size() / 4);
  return batch_.packed_plans.emplace_back(
      PackedPlan{&table, tokens, step_.put(kTokenBuffer, numbers), count});
}

}  // namespace sluice::kernels::cuda

#include "kernels/cuda/attention/attention_dispatch.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/attention/decode_attention_plan.h"
#include "kernels/cuda/common/views.h"
#include "kernels/cuda/step/token_params.h"
#include "kernels/cuda/tiles/tile_attention.h"

namespace sluice::kernels::cuda {

CacheView cache_of(const TensorView& view, const TensorView& scales) {
  SLUICE_CHECK(view.rank == 4 && view.device == Device::Cuda && view.stride[3] == 1);
  CacheView c = blank<CacheView>();
  c.data = view.data;
  c.type = view.dtype;
  c.blocks = view.dim(0);
  c.dim = view.dim(3);
  c.stride_block = view.stride[0];
  c.stride_slot = view.stride[1];
  c.stride_head = view.stride[2];
  if (view.dtype == DType::I8) {
    SLUICE_CHECK(scales.dtype == DType::F32 && scales.rank == 3 && scales.stride[2] == 1);
    c.scales = static_cast<float*>(scales.data);
    c.scale_stride_block = scales.stride[0];
    c.scale_stride_slot = scales.stride[1];
  }
  return c;
}

namespace {

bool runs_neighbours(const RaggedBatch& batch) {
  for (int s = 0; s < batch.sequences(); ++s) {
    const auto first = static_cast<size_t>(batch.query_begin[static_cast<size_t>(s)]);
    const auto last = static_cast<size_t>(batch.query_begin[static_cast<size_t>(s) + 1]);
    for (size_t i = first + 1; i < last; ++i)
      if (batch.positions[i] != batch.positions[i - 1] + 1) return false;
  }
  return true;
}

// How many sequences, from the first on, run one token each.
int count_singles(const RaggedBatch& batch) {
  int s = 0;
  while (s < batch.sequences() && batch.query_begin[static_cast<size_t>(s) + 1] == s + 1) ++s;
  return s;
}

}  // namespace

AttentionDispatch::AttentionDispatch(StepContext& step)
    : step_(step), decode_workspace_(allocate_device(decode_workspace_bytes())) {
  check(cudaMemsetAsync(decode_workspace_.get(), 0, decode_workspace_bytes(), step_.stream), "memset");
}

void AttentionDispatch::begin(const RaggedBatch& batch) {
  batch_ = Batch{};
  batch_.identity = batch.positions.data();
  batch_.tokens = batch.tokens();
  batch_.sequences = batch.sequences();
  batch_.consecutive = batch.seen.empty() && runs_neighbours(batch);
  // Where others run several tokens in a step that comes back, how many run one is no part of what it is.
  batch_.singles = count_singles(batch);
  if (step_.mode != Mode::Eager && batch_.singles < batch_.sequences) batch_.singles = 0;
  for (const int32_t begin : batch.query_begin.subspan(static_cast<size_t>(batch_.singles)))
    batch_.rest_begin_host.push_back(begin - batch_.singles);
  batch_.query_begin_host.assign(batch.query_begin.begin(), batch.query_begin.end());
  batch_.positions_host.assign(batch.positions.begin(), batch.positions.end());
  std::vector<int32_t>& sequence = batch_.sequence_host;
  sequence.resize(batch.positions.size());
  for (int s = 0; s < batch.sequences(); ++s) {
    const auto at = static_cast<size_t>(s);
    std::fill(sequence.begin() + batch.query_begin[at], sequence.begin() + batch.query_begin[at + 1], s);
  }
  batch_.positions = step_.put(kTokenBuffer, batch.positions);
  if (!batch.seen.empty()) batch_.seen = step_.put(kTokenBuffer, batch.seen);
  batch_.sequence = step_.put(kTokenBuffer, sequence);
  batch_.query_begin = step_.put(kTokenBuffer, batch.query_begin);
  batch_.rest_begin = step_.put(kTokenBuffer, batch_.rest_begin_host);
}

const AttentionDispatch::Batch& AttentionDispatch::batch_of(const RaggedBatch& batch) {
  SLUICE_CHECK(batch_.identity == batch.positions.data() && batch_.tokens == batch.tokens());
  return batch_;
}

// Rows of the table one after the other, each as long as its sequence needs. Entries of blocks already given
// back become 0: the fast attention may touch them, with weight zero.
const AttentionDispatch::Table& AttentionDispatch::table_of(const RaggedBatch& batch, const PagedKv& kv) {
  batch_of(batch);
  const auto block_size = static_cast<int32_t>(kv.k.dim(1));
  for (const Table& table : batch_.tables)
    if (table.index == kv.table && table.view.block_size == block_size) return table;
  SLUICE_CHECK(batch_.tables.size() < kMaxTables);
  const size_t buffer = kTableBuffer + batch_.tables.size();
  const RaggedBatch::BlockTable& source = batch.tables[static_cast<size_t>(kv.table)];
  Table table{kv.table, blank<TableView>(), {0}, {}, {}, nullptr};
  std::vector<int32_t>& blocks = table.blocks;
  std::vector<int32_t> last_length;
  for (int s = 0; s < batch.sequences(); ++s) {
    const int32_t end = batch.query_begin[static_cast<size_t>(s) + 1];
    const bool any = end > batch.query_begin[static_cast<size_t>(s)];
    const int32_t length = any ? batch.positions[static_cast<size_t>(end) - 1] + 1 : 0;
    const int32_t count = (length + block_size - 1) / block_size;
    SLUICE_CHECK_LE(count, source.width);
    const auto row = source.blocks.subspan(static_cast<size_t>(s) * static_cast<size_t>(source.width),
                                           static_cast<size_t>(count));
    for (int32_t block : row) blocks.push_back(std::max(block, 0));
    table.row_begin.push_back(static_cast<int32_t>(blocks.size()));
    table.lengths.push_back(length);
    last_length.push_back(length - std::max(count - 1, 0) * block_size);
  }
  table.view.block_size = block_size;
  table.view.positions = batch_.positions;
  table.view.seen = batch_.seen;
  table.view.sequence = batch_.sequence;
  table.view.row_begin = step_.put(buffer, table.row_begin);
  table.last_length = step_.put(buffer, last_length);
  table.view.blocks = step_.put(buffer, blocks);
  return batch_.tables.emplace_back(std::move(table));
}

const AttentionDispatch::Plan& AttentionDispatch::plan_of(const FlashShape& shape, const Table& table,
                                                          int first, bool hopper) {
  for (const Plan& plan : plans_) {
    if (plan.shape == shape && plan.table == table.index && plan.first == first && plan.hopper == hopper)
      return plan;
  }
  SLUICE_CHECK(step_.mode != Mode::Issue);
  // Entries for every tile of 16 rows and for every part of a split, and one per token.
  const int64_t group = shape.heads / shape.kv_heads, tokens = batch_.tokens - first;
  const int sequences = batch_.sequences - first;
  const int64_t tiles = (tokens * group + 15) / 16 + sequences + 2 * step_.processors;
  const size_t bytes = hopper ? hopper_schedule_bytes(shape, tokens, sequences, step_.processors)
                              : static_cast<size_t>(tiles * 16 + (tokens + sequences) * 8 + 4096);
  const Staging::Place place = step_.staging.reserve(kPlanBuffer + plans_.size(), bytes);
  FlashWorkspace workspace{};
  workspace.partial_bytes = flash_partial_bytes(shape, step_.processors);
  workspace.partial = flash_partial_.at_least(workspace.partial_bytes);
  workspace.schedule = place.device;
  workspace.staging = place.host;
  workspace.schedule_bytes = bytes;
  const auto& begin = first > 0 ? batch_.rest_begin_host : batch_.query_begin_host;
  const FlashBatch batch{begin.data(), table.row_begin.data() + first, table.lengths.data() + first,
                         static_cast<int32_t>(tokens), sequences};
  const FlashPlan plan =
      hopper ? make_hopper_plan(workspace, shape, batch, step_.stream)
             : make_flash_plan(workspace, shape, batch, step_.mode == Mode::Describe, step_.stream);
  return plans_.emplace_back(Plan{shape, table.index, first, hopper, plan, place.device});
}

AttentionParams without_first(AttentionParams p, int64_t tokens) {
  p.q.n -= tokens;
  p.out.n -= tokens;
  p.q.data = static_cast<uint16_t*>(p.q.data) + tokens * p.q.stride_n;
  p.out.data = static_cast<uint16_t*>(p.out.data) + tokens * p.out.stride_n;
  p.table.positions += tokens;
  if (p.table.seen != nullptr) p.table.seen += tokens;
  p.table.sequence += tokens;
  return p;
}

void AttentionDispatch::attend(TensorView out, TensorView q, const PagedKv& kv, const RaggedBatch& batch,
                               const AttentionShape& shape) {
  const Table& table = table_of(batch, kv);
  AttentionParams p = blank<AttentionParams>();
  p.out = view_of(out);
  p.q = view_of(q);
  p.k = cache_of(kv.k, kv.k_scales);
  p.v = cache_of(kv.v, kv.v_scales);
  p.k.dim = shape.key_dim;
  p.v.dim = shape.value_dim;
  p.table = table.view;
  p.sinks = floats_of(shape.sinks, shape.heads);
  p.alibi = floats_of(shape.alibi, shape.heads);
  p.kv_heads = shape.kv_heads;
  p.scale = shape.scale;
  p.softcap = shape.softcap;
  p.window = shape.window;
  p.chunked = shape.chunked ? 1 : 0;
  if (p.q.type == DType::BF16) return attend_on(p, table);
  if (p.k.type == DType::BF16 || p.k.type == DType::F8_E4M3) return attend_rounded(p, table);
  step_.issue(launch_attention, p);
}

// f32 queries over a cache of bf16 or fp8: rounded, for the kernels that take nothing else.
void AttentionDispatch::attend_rounded(const AttentionParams& wide, const Table& table) {
  const auto bytes = [](const View& v) {
    return static_cast<size_t>((v.n * v.heads * v.dim * 2 + 255) / 256 * 256);
  };
  auto* const memory = static_cast<std::byte*>(scratch_.at_least(bytes(wide.q) + bytes(wide.out)));
  AttentionParams p = wide;
  p.q = packed(wide.q, DType::BF16, memory);
  p.out = packed(wide.out, DType::BF16, memory + bytes(wide.q));
  ConvertParams c = blank<ConvertParams>();
  c.out = p.q;
  c.x = wide.q;
  step_.issue(launch_convert, c);
  attend_on(p, table);
  c.out = wide.out;
  c.x = p.out;
  step_.issue(launch_convert, c);
}

void AttentionDispatch::attend_on(const AttentionParams& whole, const Table& table) {
  if (whole.chunked != 0 || whole.table.seen != nullptr) return attend_tiles(whole, 0);
  if (step_.deterministic) return attend_fixed(whole, table);
  AttentionParams p = whole;
  // Steps that mix decode with prompts run the single tokens first; each kind goes to the kernel made for it.
  const int singles = attend_singles(p, table);
  if (singles == batch_.sequences) return;
  p = without_first(p, singles);
  // Results that do not lie together are copied there.
  const View wanted = p.out;
  const bool apart = wanted.stride_h != wanted.dim || wanted.stride_n != wanted.dim * wanted.heads;
  if (apart)
    p.out = packed(wanted, DType::BF16,
                   scratch_.at_least(static_cast<size_t>(wanted.n * wanted.heads * wanted.dim * 2)));
  if (!batch_.consecutive || !flash_fits(p)) {
    p.out = wanted;
    return attend_tiles(p, singles);
  }
  const FlashShape flash_shape{static_cast<int32_t>(p.q.heads),
                               static_cast<int32_t>(p.kv_heads),
                               static_cast<int32_t>(p.k.dim),
                               table.view.block_size,
                               p.window,
                               p.k.type == DType::BF16 ? 2 : 1};
  // The Hopper kernel's grid follows the lengths, so it is for steps that run once.
  const bool hopper = step_.mode == Mode::Eager && hopper_fits(p, batch_.sequences - singles);
  const Plan& plan = plan_of(flash_shape, table, singles, hopper);
  FlashParams f = blank<FlashParams>();
  f.attention = p;
  f.attention.table.row_begin += singles;
  f.plan = plan.plan;
  f.partial = flash_partial_.at_least(0);
  f.schedule = plan.schedule;
  f.query_begin = singles > 0 ? batch_.rest_begin : batch_.query_begin;
  f.last_length = table.last_length + singles;
  f.sequences = batch_.sequences - singles;
  step_.issue(hopper ? launch_hopper : launch_flash, f);
  if (!apart) return;
  PointwiseParams copy = blank<PointwiseParams>();
  copy.operation = Pointwise::Copy;
  copy.out = wanted;
  copy.a = p.out;
  step_.issue(launch_pointwise, copy);
}

// Any shape; the tokens are those of the sequences from `first` on.
void AttentionDispatch::attend_tiles(const AttentionParams& params, int first) {
  if (!tile_fits(params)) return step_.issue(launch_attention, params);
  TileAttentionParams p = blank<TileAttentionParams>();
  p.attention = params;
  p.sequences = batch_.sequences - first;
  p.query_begin = first > 0 ? batch_.rest_begin : batch_.query_begin;
  // Fixed sums: neither depends on how many tokens a sequence runs.
  p.few = !step_.deterministic && tile_few(params, p.sequences) ? 1 : 0;
  p.splits = step_.deterministic ? 1 : tile_splits(params, p.sequences, step_.processors);
  if (p.splits > 1)
    p.partial = static_cast<float*>(flash_partial_.at_least(tile_partial_bytes(params, p.splits)));
  step_.issue(launch_tile_attention, p);
}

// The leading sequences of one token each, if the kernel for them takes this shape. Returns how many it took.
int AttentionDispatch::attend_singles(const AttentionParams& whole, const Table& table) {
  DecodeAttentionParams one = blank<DecodeAttentionParams>();
  one.attention = whole;
  one.attention.q.n = one.attention.out.n = batch_.singles;
  one.workspace = decode_workspace_.get();
  if (!one_fits(one.attention)) return 0;
  one.ahead = 1;
  const auto positions = std::span(batch_.positions_host).first(static_cast<size_t>(batch_.singles));
  const int blocks = few_blocks(one.attention);
  if (clusters_are_faster(positions,
                          {static_cast<int>(whole.kv_heads), whole.window, blocks, step_.processors})) {
    one.few = blocks;
    step_.issue(launch_few, one);
    return batch_.singles;
  }
  const auto kv_heads = static_cast<int>(whole.kv_heads);
  one.plan = one_plan({&table, kv_heads, whole.window, 0, batch_.singles, false});
  step_.issue(launch_one, one);
  return batch_.singles;
}

// In the tokens' buffer, where a plan has the same place in every step of as many tokens.
const int32_t* AttentionDispatch::one_plan(const DecodeAttentionKind& wanted) {
  for (const OnePlan& plan : batch_.one_plans)
    if (plan.kind == wanted) return plan.numbers;
  const auto first = static_cast<size_t>(wanted.first), count = static_cast<size_t>(wanted.count);
  std::vector<int32_t> rows;
  for (size_t token = first; token < first + count; ++token)
    rows.push_back(wanted.table->row_begin[static_cast<size_t>(batch_.sequence_host[token])]);
  const std::vector<int32_t> numbers =
      plan_decode_attention({std::span(batch_.positions_host).subspan(first, count), rows, wanted.kv_heads,
                             wanted.window, one_blocks(), wanted.whole});
  batch_.one_plans.push_back({wanted, step_.put(kTokenBuffer, numbers)});
  return batch_.one_plans.back().numbers;
}

}  // namespace sluice::kernels::cuda

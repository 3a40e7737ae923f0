#include "kernels/cuda/latent/latent_dispatch.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/common/features.h"
#include "kernels/cuda/common/views.h"
#include "kernels/cuda/common/weights.h"
#include "kernels/cuda/gemm/grouped/grouped_gemm.h"
#include "kernels/cuda/latent/latent_params.h"

namespace sluice::kernels::cuda {

namespace {

constexpr int64_t kFewestTokens = 64;  // of a sequence in the mean: below, its keys and values are not made
constexpr int64_t kContextsPerToken = 2;              // contexts in all, at most; memory is taken for so many
constexpr int64_t kMostTiles = 4096;                  // of 128 tokens; above, FlashInfer plans differently
constexpr size_t kExpandedBuffer = kPlanBuffer + 32;  // behind those of the other plans

CacheView latent_cache(const PagedKv& kv) {
  CacheView c = blank<CacheView>();
  c.data = kv.k.data;
  c.type = kv.k.dtype;
  c.blocks = kv.k.dim(0);
  c.dim = kv.k.dim(3);
  c.stride_block = kv.k.stride[0];
  c.stride_slot = kv.k.stride[1];
  c.stride_head = kv.k.stride[2];
  return c;
}

bool in_pieces(const View& v) {
  return v.type == DType::BF16 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0 && v.stride_n % 8 == 0 &&
         v.stride_h % 8 == 0 && v.n * v.stride_n < (int64_t{1} << 32);
}

View rows_from(View v, int64_t first, int64_t count) {
  v.data = offset_columns(v, first * v.stride_n);
  v.n = count;
  return v;
}

View elements_of(View v, int64_t first, int64_t count) {
  v.data = offset_columns(v, first);
  v.dim = count;
  return v;
}

// Whether there is a kernel for long runs, and keys and values have its sizes.
bool makes_keys(const LatentShape& shape) {
  return features().hopper && shape.nope_dim + shape.rope_dim == kExpandedKeyDim &&
         shape.value_dim == kExpandedValueDim;
}

bool single_bf16(const PointerTable& table) {
  const PointerTable::Run* const run = table.single();
  return run != nullptr && (run->maps != nullptr || !features().hopper) && run->shape.type == DType::BF16 &&
         run->shape.cols % 64 == 0 && !run->bias;
}

}  // namespace

bool LatentDispatch::write(const PagedKv& kv, const LatentRows& rows, const RmsGain& norm,
                           const RaggedBatch& batch) {
  WriteLatentParams p = blank<WriteLatentParams>();
  p.latent = view_of(rows.latent);
  p.query = view_of(rows.query);
  p.cache = latent_cache(kv);
  p.rope_dim = static_cast<int32_t>(2 * rows.angles.dim(1));
  p.latent_dim = static_cast<int32_t>(p.latent.dim - p.rope_dim);
  if (!norm.gain.empty()) p.gain = floats_of(norm.gain, p.latent_dim);
  p.eps = norm.eps;
  p.angles = static_cast<const float*>(rows.angles.data);
  p.angle_stride = rows.angles.stride[0];
  p.interleaved = rows.style == RopeStyle::GptJ ? 1 : 0;
  if (!write_latent_fits(p)) return false;
  p.table = attention_.table_of(batch, kv).view;
  step_.issue(launch_write_latent, p);
  return true;
}

bool LatentDispatch::attend(TensorView out, const LatentQueries& q, const PagedKv& kv,
                            const RaggedBatch& batch, const LatentShape& shape) {
  const AttentionDispatch::Batch& staged = attention_.batch_of(batch);
  const bool sizes = shape.latent == kLatentDim && shape.rope_dim == kLatentRopeDim && shape.heads <= 128 &&
                     kv.k.dtype == DType::BF16 && kv.k.stride[1] % 8 == 0 && kv.k.stride[0] % 8 == 0;
  if (step_.deterministic || !sizes || !staged.consecutive) return false;
  const Call call{view_of(out),
                  view_of(q.query),
                  view_of(q.absorbed),
                  view_of(q.mixed),
                  latent_cache(kv),
                  attention_.table_of(batch, kv),
                  heads_.of(shape.key_up),
                  heads_.of(shape.value_up),
                  shape};
  const bool types = in_pieces(call.out) && in_pieces(call.query) && in_pieces(call.absorbed) &&
                     in_pieces(call.mixed) && single_bf16(call.key_up) && single_bf16(call.value_up);
  const bool apart = expands(shape, call.table);
  const bool several = !apart && staged.singles < staged.sequences;
  if (!types || (several && 128 % shape.heads != 0)) return false;
  const int leading = apart ? staged.singles : staged.sequences;
  if (several && step_.mode == Mode::Eager && makes_keys(shape) && staged.tokens >= kFewestTokens)
    context_memory(call, staged.tokens);
  if (leading > 0) over_latents(call, leading);
  if (apart) expanded(call);
  return true;
}

// Taken in the first long step too, whose sequences may be short: what is left of the memory is shared out afterwards.
std::byte* LatentDispatch::context_memory(const Call& call, int64_t tokens) {
  const int64_t most = kContextsPerToken * tokens, rows = stacked(call).rows;
  return static_cast<std::byte*>(
      contexts_.at_least(static_cast<size_t>(latent_bytes(call, tokens) + most * rows * 2)));
}

int64_t LatentDispatch::latent_bytes(const Call& call, int64_t tokens) {
  return (kContextsPerToken * tokens * call.cache.dim * 2 + 255) / 256 * 256;
}

// Whether the sequences after the single tokens go over keys and values.
bool LatentDispatch::expands(const LatentShape& shape, const Table& table) const {
  const AttentionDispatch::Batch& staged = attention_.staged();
  const int64_t sequences = staged.sequences - staged.singles, tokens = staged.tokens - staged.singles;
  if (step_.mode != Mode::Eager || sequences == 0 || tokens < kFewestTokens * sequences) return false;
  if (!makes_keys(shape)) return false;
  int64_t contexts = 0;
  for (int s = staged.singles; s < staged.sequences; ++s) contexts += table.lengths[static_cast<size_t>(s)];
  return contexts <= kContextsPerToken * tokens && tokens / 128 + sequences <= kMostTiles;
}

void LatentDispatch::multiply_heads(const View& out, const View& x, const PointerTable& matrices) {
  LatentHeadsParams few = blank<LatentHeadsParams>();
  few.out = out;
  few.x = x;
  few.weights = matrices.single()->weights;
  few.shape = matrices.single()->shape;
  if (latent_heads_fit(few)) return step_.issue(launch_latent_heads, few);
  if (!features().hopper) {
    GroupedGemmParams any = blank<GroupedGemmParams>();
    any.out = out;
    any.x = x;
    any.groups = x.heads;
    return grouped_gemm(step_, any, matrices);
  }
  GroupedGemmSm90Params p = blank<GroupedGemmSm90Params>();
  p.out = out;
  p.x = x.data;
  p.shape = matrices.single()->shape;
  p.weights = matrices.single()->maps;
  p.x_stride = x.stride_n;
  p.x_group = x.stride_h;
  p.out_group = out.stride_h;
  p.groups = static_cast<int32_t>(x.heads);
  p.panel_parts = 1;
  step_.issue(launch_grouped_gemm_sm90, p);
}

void LatentDispatch::over_latents(const Call& call, int sequences) {
  const AttentionDispatch::Batch& staged = attention_.staged();
  const int64_t n = staged.query_begin_host[static_cast<size_t>(sequences)];
  const LatentShape& shape = call.shape;
  LatentParams p = blank<LatentParams>();
  p.q = elements_of(rows_from(call.absorbed, 0, n), 0, shape.latent);
  p.q_rope = elements_of(rows_from(call.query, 0, n), shape.nope_dim, shape.rope_dim);
  p.out = rows_from(call.mixed, 0, n);
  multiply_heads(p.q, elements_of(rows_from(call.query, 0, n), 0, shape.nope_dim), call.key_up);
  const AttentionDispatch::LatentPlanned& plan = latent_plan(call.table, shape.heads, sequences);
  p.cache = call.cache;
  p.blocks = call.table.view.blocks;
  p.plan = plan.numbers;
  p.layout = plan.layout;
  p.partial = partial_.at_least(latent_partial_bytes(plan.layout));
  p.scale = shape.scale;
  p.block_size = call.table.view.block_size;
  step_.issue(features().hopper ? launch_latent_sm90 : launch_latent, p);
  multiply_heads(rows_from(call.out, 0, n), p.out, call.value_up);
}

// In the tokens' buffer, where a plan has the same place in every step of as many tokens.
const AttentionDispatch::LatentPlanned& LatentDispatch::latent_plan(const Table& table, int heads,
                                                                    int sequences) {
  AttentionDispatch::Batch& staged = attention_.staged();
  for (const AttentionDispatch::LatentPlanned& plan : staged.latent_plans)
    if (plan.table == &table && plan.heads == heads && plan.sequences == sequences) return plan;
  std::vector<LatentSequence> all;
  for (size_t s = 0; s < static_cast<size_t>(sequences); ++s) {
    const int32_t begin = staged.query_begin_host[s];
    all.push_back({begin, staged.query_begin_host[s + 1] - begin, table.row_begin[s], table.lengths[s]});
  }
  const LatentPlanLayout layout = latent_layout(all, heads, step_.processors);
  const int32_t* numbers = step_.put(kTokenBuffer, plan_latent(all, layout));
  staged.latent_plans.push_back({&table, heads, sequences, layout, numbers});
  return staged.latent_plans.back();
}

void LatentDispatch::expanded(const Call& call) {
  const AttentionDispatch::Batch& staged = attention_.staged();
  const LatentShape& shape = call.shape;
  const int64_t n = staged.tokens - staged.singles;
  const Weight& weight = stacked(call);
  const AttentionDispatch::ExpandedPlanned& plan = expanded_plan(call.table, shape.heads);
  std::byte* const memory = context_memory(call, n);

  GatherLatentsParams gather = blank<GatherLatentsParams>();
  gather.out = memory;
  gather.cache = call.cache;
  gather.slots = plan.slots;
  gather.count = plan.contexts;
  gather.block_size = call.table.view.block_size;
  step_.issue(launch_gather_latents, gather);
  const auto on_device = [&](void* data, int64_t dim) {
    return TensorView::contiguous(data, DType::BF16, {plan.contexts, dim}, Device::Cuda);
  };
  const TensorView made = on_device(memory + latent_bytes(call, n), weight.rows);
  gemm_.matmul(made, on_device(memory, call.cache.dim), weight);

  ExpandedParams p = blank<ExpandedParams>();
  p.out = rows_from(call.out, staged.singles, n);
  p.q = rows_from(call.query, staged.singles, n);
  const View heads = view_of(made.columns_as_heads(0, shape.heads, weight.rows / shape.heads));
  p.k = elements_of(heads, 0, kExpandedKeyDim);
  p.v = elements_of(heads, kExpandedKeyDim, kExpandedValueDim);
  p.plan = plan.plan;
  p.schedule = plan.schedule;
  p.scale = shape.scale;
  step_.issue(launch_expanded, p);
}

const AttentionDispatch::ExpandedPlanned& LatentDispatch::expanded_plan(const Table& table, int heads) {
  AttentionDispatch::Batch& staged = attention_.staged();
  for (const AttentionDispatch::ExpandedPlanned& plan : staged.expanded_plans)
    if (plan.table == &table && plan.heads == heads) return plan;
  SLUICE_CHECK(step_.mode == Mode::Eager);
  const int32_t block_size = table.view.block_size;
  const int sequences = staged.sequences - staged.singles;
  const int64_t tokens = staged.tokens - staged.singles;
  std::vector<int32_t> begin{0}, slots;
  for (auto s = static_cast<size_t>(staged.singles); s < static_cast<size_t>(staged.sequences); ++s) {
    for (int32_t i = 0; i < table.lengths[s]; ++i) {
      const int32_t at = table.row_begin[s] + i / block_size;
      slots.push_back(table.blocks[static_cast<size_t>(at)] * block_size + i % block_size);
    }
    begin.push_back(static_cast<int32_t>(slots.size()));
  }
  const FlashShape shape{heads, heads, static_cast<int32_t>(kExpandedKeyDim), 1, 0, 2};
  FlashWorkspace workspace{};
  workspace.schedule_bytes = hopper_schedule_bytes(shape, tokens, sequences, step_.processors);
  const Staging::Place place =
      step_.staging.reserve(kExpandedBuffer + staged.expanded_plans.size(), workspace.schedule_bytes);
  workspace.schedule = place.device;
  workspace.staging = place.host;
  const FlashBatch batch{staged.rest_begin_host.data(), begin.data(), table.lengths.data() + staged.singles,
                         static_cast<int32_t>(tokens), sequences};
  const FlashPlan plan = make_expanded_plan(workspace, shape, batch, step_.stream);
  const auto contexts = static_cast<int64_t>(slots.size());
  staged.expanded_plans.push_back(
      {&table, heads, plan, place.device, step_.put(kTokenBuffer, slots), contexts});
  return staged.expanded_plans.back();
}

const Weight& LatentDispatch::stacked(const Call& call) {
  const std::shared_ptr<const void>& owner = call.shape.key_up[0].packed;
  Stacked& found = stacked_[owner.get()];
  if (found.owner.lock() == owner) return found.weight;
  StackLatentParams p = blank<StackLatentParams>();
  p.heads = call.shape.heads;
  p.latent_dim = call.shape.latent;
  p.nope_dim = call.shape.nope_dim;
  p.rope_dim = call.shape.rope_dim;
  p.value_dim = call.shape.value_dim;
  const PointerTable::Run &keys = *call.key_up.single(), &values = *call.value_up.single();
  p.key_up = keys.weights;
  p.value_up = values.weights;
  p.key_stride = keys.shape.row_bytes / 2;
  p.value_stride = values.shape.row_bytes / 2;
  Matrix matrix = blank<Matrix>();
  matrix.rows = int64_t{p.heads} * (p.nope_dim + p.rope_dim + p.value_dim);
  matrix.cols = p.latent_dim + p.rope_dim;
  matrix.row_bytes = matrix.cols * 2;
  matrix.type = DType::BF16;
  auto made = std::make_shared<DeviceWeight>();
  made->memory.push_back(allocate_device(static_cast<size_t>(matrix.rows * matrix.row_bytes)));
  matrix.data = p.out = made->memory.back().get();
  made->matrices.push_back(matrix);
  step_.issue(launch_stack_latent, p);
  found.owner = owner;
  found.weight.rows = matrix.rows;
  found.weight.cols = matrix.cols;
  found.weight.packed = std::move(made);
  return found.weight;
}

}  // namespace sluice::kernels::cuda

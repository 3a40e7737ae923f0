#include "kernels/cuda/moe/moe_dispatch.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/cuda/common/views.h"
#include "kernels/cuda/gemm/grouped/grouped_gemm.h"
#include "kernels/cuda/gemm/order_params.h"
#include "kernels/cuda/step/token_params.h"

namespace sluice::kernels::cuda {

namespace {

// Places in one piece of memory, each at a multiple of 256 bytes.
struct Places {
  size_t bytes = 0;
  size_t next(int64_t size) {
    const size_t at = bytes;
    bytes += static_cast<size_t>((size + 255) / 256 * 256);
    return at;
  }
};

int64_t panel_bytes(const PointerTable& table, DType entries) {
  int64_t most = 0;
  for (const PointerTable::Run& run : table.runs)
    if (run.maps == nullptr) most = std::max(most, DequantGemmPlan(run.shape, run.count, entries).bytes());
  return most;
}

}  // namespace

bool MoeDispatch::takes_sm90(const PointerTable& table, DType entries, const Mixture& mixture) const {
  const GemmMode mode = gemm_mode(entries, step_.deterministic);
  const int64_t mean = std::max<int64_t>(1, mixture.pairs() / mixture.experts());
  return std::ranges::all_of(table.runs, [&](const PointerTable::Run& run) {
    const Stored stored = run.maps != nullptr ? Stored::Bf16 : Stored::Blocks;
    const GemmShape shape = panel_parts(run.shape, entries) == 1 ? GemmShape::Small : GemmShape::Medium;
    const GemmRow& row = gemm_row({step_.arch, GemmUse::Experts, mode, stored, shape, mean});
    return row.kernels[0] == GemmKernel::GroupedSm90 && run.row % 2 == 0 &&
           experts_fit(in_panel(run.shape), run.count, mixture.pairs());
  });
}

void MoeDispatch::route(TensorView ids, TensorView weights, TensorView logits, const Routing& routing) {
  SLUICE_CHECK(ids.dtype == DType::I32 && weights.dtype == DType::F32);
  SLUICE_CHECK(ids.dim(1) == routing.slots() && weights.dim(1) == routing.slots() &&
               logits.dim(1) == routing.logits());
  SLUICE_CHECK(routing.used <= routing.experts && routing.experts % routing.groups == 0);
  RouteParams p = blank<RouteParams>();
  p.ids = static_cast<int32_t*>(ids.data);
  p.weights = static_cast<float*>(weights.data);
  p.logits = view_of(logits);
  p.ids_stride = ids.stride[0];
  p.weights_stride = weights.stride[0];
  if (!routing.choice_bias.empty()) p.choice_bias = static_cast<const float*>(routing.choice_bias.data);
  if (!routing.weight_scale.empty()) p.weight_scale = static_cast<const float*>(routing.weight_scale.data);
  p.experts = routing.experts;
  p.used = routing.used;
  p.always = routing.always;
  p.always_weight = routing.always_weight;
  p.always_gated = routing.always_gated ? 1 : 0;
  p.groups = routing.groups_used >= routing.groups ? 1 : routing.groups;
  p.groups_used = routing.groups_used;
  p.group_best = routing.group_best;
  p.scale = routing.scale;
  p.margin = routing.margin;
  p.score = static_cast<int32_t>(routing.score);
  p.normalize = routing.normalize ? 1 : 0;
  routed_ = routing.experts + routing.always;
  always_ = routing.always;
  const bool put_off = step_.mode != Mode::Eager && logits.dtype == DType::F32 && p.logits.n > 0 &&
                       p.logits.n <= kMostRoutedTokens && routes_by_warp(p);
  put_off ? step_.defer_route(p) : step_.issue(launch_route, p);
}

bool MoeDispatch::has_all(const ExpertBank& bank) const {
  return bank.first == 0 && std::cmp_greater_equal(bank.down.size(), routed_);
}

// A slot of weight zero adds nothing where weights multiply what experts give; where they multiply what experts read, none
// has a bias.
void MoeDispatch::keep_own(TensorView ids, TensorView weights, const ExpertBank& bank) {
  if (has_all(bank)) return;
  OwnExpertsParams p = blank<OwnExpertsParams>();
  p.ids = static_cast<int32_t*>(ids.data);
  p.weights = static_cast<float*>(weights.data);
  p.ids_stride = ids.stride[0];
  p.weights_stride = weights.stride[0];
  p.n = ids.dim(0);
  p.used = static_cast<int32_t>(ids.dim(1));
  p.first = bank.first;
  p.count = static_cast<int32_t>(bank.down.size());
  step_.issue(launch_own_experts, p);
}

void MoeDispatch::moe_ffn(TensorView out, TensorView x, TensorView ids, TensorView weights,
                          const ExpertBank& bank) {
  if (x.dim(0) == 0) return;
  keep_own(ids, weights, bank);
  Mixture mixture{
      out, x, ids, weights, bank, experts_.of(bank.gate_up), experts_.of(bank.down), blank<RouteParams>()};
  const GemmRow& row = gemm_row({step_.arch, GemmUse::ExpertFfn, gemm_mode(x.dtype, step_.deterministic),
                                 Stored::Blocks, GemmShape::Small, x.dim(0)});
  if (row.kernels[0] == GemmKernel::MoeGemv && few_tokens(mixture)) return;
  if (const std::optional<RouteParams> route = step_.take_route(ids.data)) mixture.route = *route;
  sorted(mixture);
}

bool MoeDispatch::few_tokens(const Mixture& mixture) {
  const auto& [out, x, ids, weights, bank, up_table, down_table, _] = mixture;
  const PointerTable::Run *const up = up_table.single(), *const down = down_table.single();
  if (up == nullptr || down == nullptr) return false;
  if (up_table.orders != nullptr || down_table.orders != nullptr) return false;
  FewExpertsParams p = blank<FewExpertsParams>();
  p.out = view_of(out);
  p.x = view_of(x);
  p.up = up->shape;
  p.down = down->shape;
  p.up_matrices = up->weights, p.down_matrices = down->weights;
  p.up_biases = up->biases, p.down_biases = down->biases;
  p.ids = static_cast<const int32_t*>(ids.data);
  p.weights = static_cast<const float*>(weights.data);
  p.ids_stride = ids.stride[0];
  p.weights_stride = weights.stride[0];
  p.used = static_cast<int32_t>(ids.dim(1));
  p.activation = static_cast<int32_t>(bank.activation);
  p.gated = bank.gated ? 1 : 0;
  p.weigh_inputs = bank.weigh_inputs ? 1 : 0;
  p.limit = bank.limit;
  if (!few_experts_fit(p)) return false;
  p.active = scratch_.at_least(static_cast<size_t>(p.x.n * p.used * p.down.cols) * sizeof(float));
  p.experts = static_cast<int32_t>(bank.down.size());
  p.always = has_all(bank) && p.experts == routed_ ? always_ : 0;
  if (!few_bf16_fits(p)) {
    step_.issue(launch_few_experts, p);
    return true;
  }
  step_.issue(launch_few_up_bf16, p);
  step_.mode != Mode::Eager ? step_.defer_down(p) : step_.issue(launch_few_down_bf16, p);
  return true;
}

bool MoeDispatch::gathers(const Mixture& mixture, bool up_sm90) const {
  constexpr int64_t kMostInTheMean = 8;  // rows of an expert: one block copies them
  // Several slots of a token have the same expert where keep_own() gives an expert to those of other ranks.
  const int64_t most = has_all(mixture.bank) ? mixture.x.dim(0) : mixture.pairs();
  return up_sm90 && mixture.x.dtype == DType::BF16 && !mixture.bank.weigh_inputs &&
         mixture.up.orders == nullptr && most <= kMostGatheredTokens &&
         mixture.pairs() <= kMostInTheMean * mixture.experts();
}

bool MoeDispatch::gates_in_one(const Mixture& mixture, bool up_sm90) const {
  const PointerTable::Run* const up = mixture.up.single();
  return up_sm90 && mixture.bank.gated && mixture.x.dtype == DType::BF16 && up != nullptr &&
         up->maps != nullptr && mixture.bank.activation == Activation::Silu && mixture.inner() % 2 == 0 &&
         !(mixture.bank.limit > 0.0f);
}

MoeDispatch::Memory MoeDispatch::memory_of(const Mixture& mixture, bool up_sm90, bool down_sm90) {
  const auto& [out, x, ids, weights, bank, up, down, route] = mixture;
  const DType type = x.dtype;
  const int64_t size = type == DType::F32 ? 4 : 2, experts = mixture.experts(), pairs = mixture.pairs();
  const int64_t hidden_dim = bank.gate_up[0].rows, inner = mixture.inner(), dim = bank.down[0].rows;
  SLUICE_CHECK_EQ(hidden_dim, bank.gated ? 2 * inner : inner);
  Places places;
  const size_t begin_at = places.next((experts + 1) * 4), counters_at = places.next(2 * 4);
  const size_t tokens_at = places.next(pairs * 4), place_at = places.next(pairs * 4);
  const size_t hidden_at = places.next(gates_in_one(mixture, up_sm90) ? 0 : pairs * hidden_dim * size),
               active_at = places.next(pairs * inner * size);
  const size_t result_at = places.next(pairs * std::max(dim, x.dim(1)) * size);  // weighed inputs before
  const size_t entries_at = places.next(up_sm90 || down_sm90 ? pairs * std::max(x.dim(1), inner) * size : 0);
  const size_t panel_at =
      places.next(std::max(up_sm90 ? panel_bytes(up, type) : 0, down_sm90 ? panel_bytes(down, type) : 0));
  const bool orders = up.orders != nullptr || down.orders != nullptr;
  const size_t ordered_at = places.next(orders ? pairs * std::max(x.dim(1), inner) * size : 0);
  auto* const memory = static_cast<std::byte*>(scratch_.at_least(places.bytes));
  Memory m{blank<SortParams>(),
           contiguous(memory + hidden_at, type, pairs, hidden_dim),
           contiguous(memory + active_at, type, pairs, inner),
           contiguous(memory + result_at, type, pairs, dim),
           contiguous(memory + result_at, type, pairs, x.dim(1)),
           memory + entries_at,
           memory + panel_at,
           memory + ordered_at};
  m.sort.ids = static_cast<const int32_t*>(ids.data);
  m.sort.ids_stride = ids.stride[0];
  m.sort.n = x.dim(0);
  m.sort.used = static_cast<int32_t>(ids.dim(1));
  m.sort.experts = static_cast<int32_t>(experts);
  m.sort.begin = reinterpret_cast<int32_t*>(memory + begin_at);
  m.sort.counters = reinterpret_cast<int32_t*>(memory + counters_at);
  m.sort.tokens = reinterpret_cast<int32_t*>(memory + tokens_at);
  m.sort.place = reinterpret_cast<int32_t*>(memory + place_at);
  m.sort.route = route;
  m.sort.x = view_of(x);
  if (gathers(mixture, up_sm90)) m.sort.rows = m.entries;
  return m;
}

void MoeDispatch::sorted(const Mixture& mixture) {
  const bool up_sm90 = takes_sm90(mixture.up, mixture.x.dtype, mixture) && aligned_tokens(view_of(mixture.x));
  const bool down_sm90 = takes_sm90(mixture.down, mixture.x.dtype, mixture);
  const Memory memory = memory_of(mixture, up_sm90, down_sm90);
  step_.issue(launch_sort, memory.sort);
  GroupedGemmParams gemm = blank<GroupedGemmParams>();
  gemm.groups = mixture.experts();
  gemm.begin = memory.sort.begin;
  gemm.out = memory.hidden;
  gemm.x = view_of(mixture.x);
  gemm.gather = memory.sort.tokens;
  if (memory.sort.rows != nullptr) {
    gemm.x = contiguous(memory.sort.rows, DType::BF16, mixture.pairs(), gemm.x.dim);
    gemm.gather = nullptr;
  }
  if (mixture.bank.weigh_inputs) {
    WeighParams weigh = blank<WeighParams>();
    weigh.out = memory.weighed;
    weigh.x = gemm.x;
    weigh.weights = static_cast<const float*>(mixture.weights.data);
    weigh.weights_stride = mixture.weights.stride[0];
    weigh.place = memory.sort.place;
    weigh.used = memory.sort.used;
    step_.issue(launch_weigh, weigh);
    gemm.x = weigh.out;
    gemm.gather = nullptr;
  }
  order(gemm, mixture.up, memory);
  if (gates_in_one(mixture, up_sm90)) {
    gemm.out = memory.active;
    multiply_sm90(gemm, mixture.up, memory, {.gated = true});
  } else {
    up_sm90 ? multiply_sm90(gemm, mixture.up, memory, {}) : grouped_gemm(step_, gemm, mixture.up);
    activate(mixture, memory);
  }
  gemm.out = memory.result;
  gemm.x = memory.active;
  gemm.gather = nullptr;
  order(gemm, mixture.down, memory);
  down_sm90 ? multiply_sm90(gemm, mixture.down, memory, {.second = true, .behind_sm90 = up_sm90})
            : grouped_gemm(step_, gemm, mixture.down);
  combine(mixture, memory);
}

void MoeDispatch::order(GroupedGemmParams& gemm, const PointerTable& table, const Memory& memory) {
  if (table.orders == nullptr) return;
  OrderEntriesParams p = blank<OrderEntriesParams>();
  p.x = gemm.x;
  p.out = contiguous(memory.ordered, gemm.x.type, gemm.out.n, gemm.x.dim);
  p.orders = table.orders;
  p.begin = gemm.begin;
  p.gather = gemm.gather;
  p.groups = gemm.groups;
  step_.issue(launch_order_entries, p);
  gemm.x = p.out;
  gemm.gather = nullptr;
}

void MoeDispatch::activate(const Mixture& mixture, const Memory& memory) {
  PointwiseParams p = blank<PointwiseParams>();
  p.operation = mixture.bank.gated ? Pointwise::Gated : Pointwise::Activate;
  p.activation = static_cast<int32_t>(mixture.bank.activation);
  if (mixture.bank.gated) p.factor = mixture.bank.limit;
  p.out = memory.active;
  p.a = memory.hidden;
  p.a.dim = mixture.inner();
  if (mixture.bank.gated) {
    p.b = p.a;
    p.b.data = offset_columns(memory.hidden, mixture.inner());
  }
  step_.issue(launch_pointwise, p);
}

void MoeDispatch::combine(const Mixture& mixture, const Memory& memory) {
  CombineParams p = blank<CombineParams>();
  p.out = view_of(mixture.out);
  p.x = memory.result;
  p.weights = mixture.bank.weigh_inputs ? nullptr : static_cast<const float*>(mixture.weights.data);
  p.weights_stride = mixture.weights.stride[0];
  p.place = memory.sort.place;
  p.used = memory.sort.used;
  constexpr int64_t kMostPutOff = 256;
  const bool put_off = step_.mode != Mode::Eager && p.out.type == DType::BF16 && p.out.n <= kMostPutOff;
  put_off ? step_.defer_combine(p) : step_.issue(launch_combine, p);
}

void MoeDispatch::multiply_sm90(const GroupedGemmParams& common, const PointerTable& table,
                                const Memory& memory, ExpertGemm which) {
  GroupedGemmSm90Params p = blank<GroupedGemmSm90Params>();
  p.gated = which.gated ? 1 : 0;
  p.early = which.behind_sm90 ? 1 : 0;
  if (table.runs.size() == 1) p.counter = memory.sort.counters + (which.second ? 1 : 0);
  p.out = common.out;
  p.x = common.x.data;
  if (common.x.type == DType::F32 || common.gather != nullptr) {
    EntriesParams e = blank<EntriesParams>();
    e.x = common.x;
    e.out = memory.entries;
    e.gather = common.gather;
    e.entries = common.out.n;
    step_.issue(launch_entries, e);
    p.x = memory.entries;
  }
  for (const PointerTable::Run& run : table.runs) {
    p.begin = common.begin + run.first;
    p.groups = static_cast<int32_t>(run.count);
    p.out.data = offset_columns(common.out, run.row);
    p.biases = run.biases;
    p.shape = run.shape;
    p.weights = run.maps;
    p.panel_parts = 1;
    if (run.maps == nullptr)
      dequant_grouped_gemm(step_, p, run.shape, run.weights, memory.panel);
    else
      step_.issue(launch_grouped_gemm_sm90, p);
  }
}

}  // namespace sluice::kernels::cuda

// Mixtures: routing, and the experts' products over tokens sorted by expert. Nothing returns to the host in
// between.
#include "kernels/cuda/backend.h"

namespace sluice::kernels::cuda {

namespace {

View contiguous(void* data, DType type, int64_t n, int64_t dim) {
  View v = blank<View>();
  v.data = data;
  v.type = type;
  v.n = n;
  v.heads = 1;
  v.dim = dim;
  v.stride_n = dim;
  return v;
}

}  // namespace

void Impl::route(TensorView ids, TensorView weights, TensorView logits, const Routing& routing) {
  SLUICE_CHECK(ids.dtype == DType::I32 && weights.dtype == DType::F32);
  SLUICE_CHECK(ids.dim(1) == routing.used && weights.dim(1) == routing.used &&
               logits.dim(1) == routing.experts);
  SLUICE_CHECK(routing.used <= routing.experts && routing.experts % routing.groups == 0);
  RouteParams p = blank<RouteParams>();
  p.ids = static_cast<int32_t*>(ids.data);
  p.weights = static_cast<float*>(weights.data);
  p.logits = view_of(logits);
  p.ids_stride = ids.stride[0];
  p.weights_stride = weights.stride[0];
  if (!routing.choice_bias.empty()) p.choice_bias = static_cast<const float*>(routing.choice_bias.data);
  p.experts = routing.experts;
  p.used = routing.used;
  p.groups = routing.groups_used >= routing.groups ? 1 : routing.groups;
  p.groups_used = routing.groups_used;
  p.group_best = routing.group_best;
  p.scale = routing.scale;
  p.margin = routing.margin;
  p.score = static_cast<int32_t>(routing.score);
  p.normalize = routing.normalize ? 1 : 0;
  issue(launch_route, p);
}

void Impl::mix_experts(TensorView out, TensorView x, TensorView ids, TensorView weights,
                       const ExpertBank& bank) {
  const int64_t n = x.dim(0), used = ids.dim(1), pairs = n * used;
  if (n == 0) return;
  const auto experts = static_cast<int64_t>(bank.gate_up.size());
  const int64_t hidden_dim = bank.gate_up[0].rows, inner = bank.down[0].cols, dim = bank.down[0].rows;
  SLUICE_CHECK_EQ(hidden_dim, bank.gated ? 2 * inner : inner);
  const PointerTable& up = pointer_table(bank.gate_up);
  const PointerTable& down = pointer_table(bank.down);

  // One piece of memory: lists, then [pairs, hidden], [pairs, inner] and [pairs, dim]; weighed inputs lie where the
  // results will.
  const auto rounded = [](int64_t bytes) { return static_cast<size_t>((bytes + 255) / 256 * 256); };
  const size_t list = rounded(pairs * 4), starts = rounded((experts + 1) * 4);
  const DType type = x.dtype;
  const int64_t size = type == DType::F32 ? 4 : 2;
  const size_t hidden_bytes = rounded(pairs * hidden_dim * size), inner_bytes = rounded(pairs * inner * size);
  auto* memory = static_cast<std::byte*>(
      scratch_.at_least(2 * list + starts + hidden_bytes + inner_bytes + rounded(pairs * dim * size)));
  SortParams sort = blank<SortParams>();
  sort.ids = static_cast<const int32_t*>(ids.data);
  sort.ids_stride = ids.stride[0];
  sort.n = n;
  sort.used = static_cast<int32_t>(used);
  sort.experts = static_cast<int32_t>(experts);
  sort.begin = reinterpret_cast<int32_t*>(memory);
  sort.tokens = reinterpret_cast<int32_t*>(memory + starts);
  sort.place = reinterpret_cast<int32_t*>(memory + starts + list);
  issue(launch_sort, sort);
  memory += starts + 2 * list;

  const View hidden = contiguous(memory, type, pairs, hidden_dim);
  const View active = contiguous(memory + hidden_bytes, type, pairs, inner);
  const View result = contiguous(memory + hidden_bytes + inner_bytes, type, pairs, dim);
  TileParams product = blank<TileParams>();
  product.groups = experts;
  product.begin = sort.begin;
  product.out = hidden;
  product.x = view_of(x);
  product.gather = sort.tokens;
  if (bank.weigh_inputs) {
    WeighParams weigh = blank<WeighParams>();
    weigh.out = contiguous(result.data, type, pairs, x.dim(1));
    weigh.x = product.x;
    weigh.weights = static_cast<const float*>(weights.data);
    weigh.weights_stride = weights.stride[0];
    weigh.place = sort.place;
    weigh.used = static_cast<int32_t>(used);
    issue(launch_weigh, weigh);
    product.x = weigh.out;
    product.gather = nullptr;
  }
  grouped_product(product, up);

  PointwiseParams p = blank<PointwiseParams>();
  p.operation = bank.gated ? Pointwise::Gated : Pointwise::Activate;
  p.activation = static_cast<int32_t>(bank.activation);
  p.out = active;
  p.a = hidden;
  p.a.dim = inner;
  if (bank.gated) {
    p.b = p.a;
    p.b.data = static_cast<std::byte*>(hidden.data) + inner * size;
  }
  pointwise(p);

  product.out = result;
  product.x = active;
  product.gather = nullptr;
  grouped_product(product, down);

  CombineParams combine = blank<CombineParams>();
  combine.out = view_of(out);
  combine.x = result;
  combine.weights = bank.weigh_inputs ? nullptr : static_cast<const float*>(weights.data);
  combine.weights_stride = weights.stride[0];
  combine.place = sort.place;
  combine.used = static_cast<int32_t>(used);
  issue(launch_combine, combine);
}

}  // namespace sluice::kernels::cuda

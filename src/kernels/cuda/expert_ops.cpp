// Mixtures: routing, and the experts' products over tokens sorted by expert. Nothing returns to the host in
// between.
#include <algorithm>

#include "kernels/cuda/backend.h"

namespace sluice::kernels::cuda {

namespace {

constexpr int64_t kFewTokens = 4;  // up to here each token reads its experts' matrices by itself

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

bool aligned_entries(const View& x) {
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride_n % 8 == 0;
}

}  // namespace

void Impl::make_expert_maps(PointerTable& table, std::span<const Weight> weights) {
  if (table.matrices.size() != 1 || !experts_fit(table.matrices[0], std::ssize(weights), 1)) return;
  std::vector<std::byte> maps(weights.size() * kExpertMapBytes);
  for (size_t i = 0; i < weights.size(); ++i)
    write_expert_map(maps.data() + i * kExpertMapBytes, device_weight(weights[i]).matrices[0]);
  table.map_memory = allocate_device(maps.size());
  check(cudaMemcpyAsync(table.map_memory.get(), maps.data(), maps.size(), cudaMemcpyHostToDevice, stream_),
        "upload of tensor maps");
  check(cudaStreamSynchronize(stream_), "upload of tensor maps");
  table.maps = table.map_memory.get();
}

void Impl::expert_product(const TileParams& common, const PointerTable& table, void* entries) {
  ExpertProductParams p = blank<ExpertProductParams>();
  p.out = common.out;
  p.x = common.x.data;
  if (common.x.type == DType::F32 || common.gather != nullptr) {
    EntriesParams e = blank<EntriesParams>();
    e.x = common.x;
    e.out = entries;
    e.gather = common.gather;
    e.entries = common.out.n;
    issue(launch_entries, e);
    p.x = entries;
  }
  p.shape = table.matrices[0];
  p.weights = table.maps;
  p.biases = table.biases[0];
  p.begin = common.begin;
  p.groups = static_cast<int32_t>(common.groups);
  issue(launch_experts, p);
}

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

bool Impl::few_experts(TensorView out, TensorView x, TensorView ids, TensorView weights,
                       const ExpertBank& bank) {
  const PointerTable& up = pointer_table(bank.gate_up);
  const PointerTable& down = pointer_table(bank.down);
  if (deterministic_ || x.dim(0) > kFewTokens || up.matrices.size() != 1 || down.matrices.size() != 1)
    return false;
  FewExpertsParams p = blank<FewExpertsParams>();
  p.out = view_of(out);
  p.x = view_of(x);
  p.up = up.matrices[0];
  p.down = down.matrices[0];
  p.up_matrices = up.weights[0], p.down_matrices = down.weights[0];
  p.up_biases = up.biases[0], p.down_biases = down.biases[0];
  p.ids = static_cast<const int32_t*>(ids.data);
  p.weights = static_cast<const float*>(weights.data);
  p.ids_stride = ids.stride[0];
  p.weights_stride = weights.stride[0];
  p.used = static_cast<int32_t>(ids.dim(1));
  p.activation = static_cast<int32_t>(bank.activation);
  p.gated = bank.gated ? 1 : 0;
  p.weigh_inputs = bank.weigh_inputs ? 1 : 0;
  if (!few_experts_fit(p)) return false;
  p.active = scratch_.at_least(static_cast<size_t>(p.x.n * p.used * p.down.cols) * sizeof(float));
  issue(launch_few_experts, p);
  return true;
}

void Impl::mix_experts(TensorView out, TensorView x, TensorView ids, TensorView weights,
                       const ExpertBank& bank) {
  const int64_t n = x.dim(0), used = ids.dim(1), pairs = n * used;
  if (n == 0 || few_experts(out, x, ids, weights, bank)) return;
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
  const bool on_tiles = !deterministic_ && up.maps != nullptr && down.maps != nullptr &&
                        experts_fit(up.matrices[0], experts, pairs) &&
                        experts_fit(down.matrices[0], experts, pairs) && aligned_entries(view_of(x));
  const size_t hidden_bytes = rounded(pairs * hidden_dim * size), inner_bytes = rounded(pairs * inner * size);
  const size_t result_bytes = rounded(pairs * dim * size);
  const size_t entry_bytes = on_tiles ? rounded(pairs * std::max(x.dim(1), inner) * size) : 0;
  auto* memory = static_cast<std::byte*>(
      scratch_.at_least(2 * list + starts + hidden_bytes + inner_bytes + result_bytes + entry_bytes));
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
  void* const entries = memory + hidden_bytes + inner_bytes + result_bytes;
  const auto multiply = [&](const TileParams& p, const PointerTable& table) {
    on_tiles ? expert_product(p, table, entries) : grouped_product(p, table);
  };
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
  multiply(product, up);

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
  multiply(product, down);

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

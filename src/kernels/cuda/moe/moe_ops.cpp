// Mixtures: routing, and the experts' GEMMs over tokens sorted by expert. Nothing returns to the host in
// between.
#include <algorithm>

#include "kernels/cuda/step/backend.h"

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

// Places in one piece of memory, each at a multiple of 256 bytes.
struct Places {
  size_t bytes = 0;
  size_t next(int64_t size) {
    const size_t at = bytes;
    bytes += static_cast<size_t>((size + 255) / 256 * 256);
    return at;
  }
};

}  // namespace

void CudaBackendImpl::make_expert_maps(PointerTable& table, std::span<const Weight> weights) {
  if (table.matrices.size() != 1 || table.matrices[0].type != DType::BF16 ||
      !experts_fit(table.matrices[0], std::ssize(weights), 1))
    return;
  std::vector<std::byte> maps(weights.size() * kExpertMapBytes);
  for (size_t i = 0; i < weights.size(); ++i)
    write_expert_map(maps.data() + i * kExpertMapBytes, device_weight(weights[i]).matrices[0]);
  table.map_memory = allocate_device(maps.size());
  check(cudaMemcpyAsync(table.map_memory.get(), maps.data(), maps.size(), cudaMemcpyHostToDevice, stream_),
        "upload of tensor maps");
  check(cudaStreamSynchronize(stream_), "upload of tensor maps");
  table.maps = table.map_memory.get();
}

bool CudaBackendImpl::grouped_gemm_fits(const PointerTable& table, DType entries, int64_t experts,
                                        int64_t pairs) {
  const auto fits = [&](const Matrix& matrix) {
    const bool ready = table.maps != nullptr || dequant_gemm_pays(matrix, entries, pairs / experts);
    return ready && experts_fit(in_panel(matrix), experts, pairs);
  };
  return !deterministic_ && std::ranges::all_of(table.matrices, fits);
}

int64_t CudaBackendImpl::panel_bytes(const PointerTable& table, int64_t experts, DType entries) {
  int64_t most = 0;
  if (table.maps != nullptr) return most;
  for (const Matrix& matrix : table.matrices)
    most = std::max(most, DequantGemmPlan(matrix, experts, entries).bytes());
  return most;
}

void CudaBackendImpl::grouped_gemm_sm90(const GroupedGemmParams& common, const PointerTable& table,
                                        ExpertMemory memory) {
  GroupedGemmSm90Params p = blank<GroupedGemmSm90Params>();
  p.out = common.out;
  p.x = common.x.data;
  if (common.x.type == DType::F32 || common.gather != nullptr) {
    EntriesParams e = blank<EntriesParams>();
    e.x = common.x;
    e.out = memory.entries;
    e.gather = common.gather;
    e.entries = common.out.n;
    issue(launch_entries, e);
    p.x = memory.entries;
  }
  p.begin = common.begin;
  p.groups = static_cast<int32_t>(common.groups);
  if (table.maps != nullptr) {
    p.shape = table.matrices[0];
    p.weights = table.maps;
    p.biases = table.biases[0];
    p.panel_parts = 1;
    return issue(launch_grouped_gemm_sm90, p);
  }
  int64_t row = 0;
  for (size_t m = 0; m < table.matrices.size(); row += table.matrices[m++].rows) {
    p.out.data = offset_columns(common.out, row);
    p.biases = table.biases[m];
    dequant_grouped_gemm(p, table.matrices[m], table.weights[m], memory.panel);
  }
}

void CudaBackendImpl::route(TensorView ids, TensorView weights, TensorView logits, const Routing& routing) {
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

bool CudaBackendImpl::moe_gemv(TensorView out, TensorView x, TensorView ids, TensorView weights,
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

void CudaBackendImpl::moe_ffn(TensorView out, TensorView x, TensorView ids, TensorView weights,
                              const ExpertBank& bank) {
  const int64_t n = x.dim(0), used = ids.dim(1), pairs = n * used;
  if (n == 0 || moe_gemv(out, x, ids, weights, bank)) return;
  const auto experts = static_cast<int64_t>(bank.gate_up.size());
  const int64_t hidden_dim = bank.gate_up[0].rows, inner = bank.down[0].cols, dim = bank.down[0].rows;
  SLUICE_CHECK_EQ(hidden_dim, bank.gated ? 2 * inner : inner);
  const PointerTable& up = pointer_table(bank.gate_up);
  const PointerTable& down = pointer_table(bank.down);

  const DType type = x.dtype;
  const int64_t size = type == DType::F32 ? 4 : 2;
  const bool up_fits = grouped_gemm_fits(up, type, experts, pairs) && aligned_tokens(view_of(x));
  const bool down_fits = grouped_gemm_fits(down, type, experts, pairs);
  Places places;
  const size_t begin_at = places.next((experts + 1) * 4);
  const size_t tokens_at = places.next(pairs * 4), place_at = places.next(pairs * 4);
  const size_t hidden_at = places.next(pairs * hidden_dim * size),
               active_at = places.next(pairs * inner * size);
  const size_t result_at = places.next(pairs * std::max(dim, x.dim(1)) * size);  // weighed inputs before
  const size_t entries_at = places.next(up_fits || down_fits ? pairs * std::max(x.dim(1), inner) * size : 0);
  const size_t panel_at = places.next(std::max(up_fits ? panel_bytes(up, experts, type) : 0,
                                               down_fits ? panel_bytes(down, experts, type) : 0));
  auto* const memory = static_cast<std::byte*>(scratch_.at_least(places.bytes));
  SortParams sort = blank<SortParams>();
  sort.ids = static_cast<const int32_t*>(ids.data);
  sort.ids_stride = ids.stride[0];
  sort.n = n;
  sort.used = static_cast<int32_t>(used);
  sort.experts = static_cast<int32_t>(experts);
  sort.begin = reinterpret_cast<int32_t*>(memory + begin_at);
  sort.tokens = reinterpret_cast<int32_t*>(memory + tokens_at);
  sort.place = reinterpret_cast<int32_t*>(memory + place_at);
  issue(launch_sort, sort);

  const View hidden = contiguous(memory + hidden_at, type, pairs, hidden_dim);
  const View active = contiguous(memory + active_at, type, pairs, inner);
  const View result = contiguous(memory + result_at, type, pairs, dim);
  const auto multiply = [&](const GroupedGemmParams& p, const PointerTable& table, bool fits) {
    fits ? grouped_gemm_sm90(p, table, {memory + entries_at, memory + panel_at}) : grouped_gemm(p, table);
  };
  GroupedGemmParams gemm = blank<GroupedGemmParams>();
  gemm.groups = experts;
  gemm.begin = sort.begin;
  gemm.out = hidden;
  gemm.x = view_of(x);
  gemm.gather = sort.tokens;
  if (bank.weigh_inputs) {
    WeighParams weigh = blank<WeighParams>();
    weigh.out = contiguous(result.data, type, pairs, x.dim(1));
    weigh.x = gemm.x;
    weigh.weights = static_cast<const float*>(weights.data);
    weigh.weights_stride = weights.stride[0];
    weigh.place = sort.place;
    weigh.used = static_cast<int32_t>(used);
    issue(launch_weigh, weigh);
    gemm.x = weigh.out;
    gemm.gather = nullptr;
  }
  multiply(gemm, up, up_fits);

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

  gemm.out = result;
  gemm.x = active;
  gemm.gather = nullptr;
  multiply(gemm, down, down_fits);

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

#include "kernels/cuda/stack/stack_dispatch.h"

#include <bit>
#include <cstring>
#include <numeric>

#include "kernels/cuda/common/features.h"
#include "kernels/cuda/common/views.h"
#include "kernels/cuda/common/weights.h"

namespace sluice::kernels::cuda {

namespace {

// Tokens of context of all sequences together up to which the kernel is the faster way.
constexpr int64_t kMostContext = 8 * 2048;
// The same of the weights of a layer: what it spares is the time between kernels, which long ones do not have.
constexpr int64_t kMostWeights = int64_t{64} << 20;

// The matrix where it lies as one, in plain rows without a bias and columns as tokens have them; else null.
const void* plain_rows(const Weight& weight, int64_t rows, int64_t cols) {
  if (!weight.runs.empty()) return nullptr;
  const DeviceWeight& device = device_weight(weight);
  if (device.bias != nullptr || device.order != nullptr || device.matrices.size() != 1) return nullptr;
  const Matrix& m = device.matrices.front();
  const bool plain = m.type == DType::BF16 && m.rows == rows && m.cols == cols && m.row_bytes == cols * 2;
  return plain && reinterpret_cast<uintptr_t>(m.data) % 16 == 0 ? m.data : nullptr;
}

// A gain that copies can take; null where there is none.
const float* gain_of(const TensorView& gain, int64_t count) {
  const float* data = floats_of(gain, count);
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 ? data : nullptr;
}

// Slots of one head lie together, at places that copies can take.
bool cache_fits(const TensorView& cache, int64_t kv_heads, int64_t dim) {
  return cache.dtype == DType::BF16 && cache.rank == 4 && cache.dim(2) == kv_heads && cache.dim(3) == dim &&
         cache.stride[3] == 1 && cache.stride[1] == dim && cache.stride[0] % 8 == 0 &&
         cache.stride[2] % 8 == 0 && reinterpret_cast<uintptr_t>(cache.data) % 16 == 0;
}

bool same_places(const PagedKv& a, const PagedKv& b) {
  return a.table == b.table && a.k.dim(1) == b.k.dim(1) && a.k.stride[0] == b.k.stride[0] &&
         a.k.stride[2] == b.k.stride[2] && a.v.stride[0] == b.k.stride[0] && a.v.stride[2] == b.k.stride[2];
}

bool fill_layer(StackLayer& out, const DenseLayer& layer, const LayerStack& stack, int64_t dim) {
  const AttentionShape& a = stack.attention;
  const int64_t width = int64_t{a.heads} * a.key_dim, kv_width = int64_t{a.kv_heads} * a.key_dim;
  out.qkv = plain_rows(*layer.qkv, width + 2 * kv_width, dim);
  out.out = plain_rows(*layer.out, dim, width);
  out.gate_up = plain_rows(*layer.gate_up, 2 * stack.inner, dim);
  out.down = plain_rows(*layer.down, dim, stack.inner);
  out.mixer_gain = gain_of(layer.mixer_gain, dim);
  out.ffn_gain = gain_of(layer.ffn_gain, dim);
  out.q_gain = floats_of(layer.q_gain, a.key_dim);
  out.k_gain = floats_of(layer.k_gain, a.key_dim);
  out.keys = layer.kv.k.data;
  out.values = layer.kv.v.data;
  return out.qkv != nullptr && out.out != nullptr && out.gate_up != nullptr && out.down != nullptr &&
         out.mixer_gain != nullptr && out.ffn_gain != nullptr &&
         cache_fits(layer.kv.k, a.kv_heads, a.key_dim) && cache_fits(layer.kv.v, a.kv_heads, a.value_dim) &&
         same_places(layer.kv, stack.layers.front().kv);
}

int64_t weights_of(const LayerStack& stack, int64_t dim) {
  const AttentionShape& a = stack.attention;
  return dim * (int64_t{2} * (a.heads + a.kv_heads) * a.key_dim + 3 * stack.inner);
}

bool shape_fits(const AttentionShape& a) {
  return a.key_dim == a.value_dim && a.window == 0 && !a.chunked && a.softcap == 0.0f && a.sinks.empty() &&
         a.alibi.empty();
}

}  // namespace

bool StackDispatch::takes(const RaggedBatch& batch) {
  if (!on_ || step_.deterministic || !features().hopper || !batch.seen.empty()) return false;
  if (batch.tokens() < 1 || batch.tokens() > kStackTokens || batch.sequences() != batch.tokens())
    return false;
  if (attention_.batch_of(batch).singles != batch.sequences()) return false;
  const int64_t context = std::accumulate(batch.positions.begin(), batch.positions.end(), batch.tokens());
  return context <= kMostContext;
}

// Made while no step is recorded: a step is described first.
uint32_t* StackDispatch::workspace_of(const StackLayout& layout) {
  for (const Workspace& one : workspaces_)
    if (std::memcmp(&one.layout, &layout, sizeof layout) == 0)
      return static_cast<uint32_t*>(one.memory.get());
  const auto bytes = static_cast<size_t>(stack_workspace_words(layout)) * sizeof(uint32_t);
  const size_t tail = 4 * sizeof(uint32_t);
  DeviceBuffer memory = allocate_device(bytes);
  auto* const data = static_cast<std::byte*>(memory.get());
  check(cudaMemsetAsync(data, 0xff, bytes - tail, step_.stream), "memset");
  check(cudaMemsetAsync(data + bytes - tail, 0, tail, step_.stream), "memset");
  workspaces_.push_back({layout, std::move(memory)});
  return reinterpret_cast<uint32_t*>(data);
}

bool StackDispatch::run(const TensorView& x, const LayerStack& stack, const TensorView& angles,
                        const RaggedBatch& batch) {
  if (!takes(batch) || !shape_fits(stack.attention) || stack.style != RopeStyle::NeoX) return false;
  if (stack.layers.empty() || stack.layers.size() > kStackLayers || x.dtype != DType::BF16) return false;
  const AttentionShape& a = stack.attention;
  const bool whole_angles = angles.rank == 3 && angles.is_contiguous() && angles.dim(1) * 2 == a.key_dim;
  if (!whole_angles || a.key_dim <= 0) return false;
  if (x.rank != 2 || weights_of(stack, x.dim(1)) > kMostWeights) return false;
  StackParams p = blank<StackParams>();
  p.x = view_of(x);
  for (size_t i = 0; i < stack.layers.size(); ++i)
    if (!fill_layer(p.layers[i], stack.layers[i], stack, p.x.dim)) return false;
  const PagedKv& kv = stack.layers.front().kv;
  const auto block_size = static_cast<uint64_t>(kv.k.dim(1));
  if (!std::has_single_bit(block_size)) return false;
  p.count = static_cast<int32_t>(stack.layers.size());
  p.tokens = static_cast<int32_t>(batch.tokens());
  p.heads = a.heads;
  p.kv_heads = a.kv_heads;
  p.head_dim = a.key_dim;
  p.inner = static_cast<int32_t>(stack.inner);
  p.eps = stack.eps;
  p.scale = a.scale;
  p.angles = static_cast<const float*>(angles.data);
  p.block_shift = std::countr_zero(block_size);
  p.stride_block = kv.k.stride[0];
  p.stride_head = kv.k.stride[2];
  if (!stack_fits(p, step_.processors)) return false;
  p.table = attention_.table_of(batch, kv).view;
  p.layout = stack_layout(p, step_.processors);
  p.workspace = workspace_of(p.layout);
  step_.issue(launch_stack, p);
  return true;
}

}  // namespace sluice::kernels::cuda

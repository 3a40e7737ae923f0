#include "runtime/sequences/prompt_attention.h"

#include <algorithm>
#include <cmath>

#include "tensor/half.h"

namespace sluice::runtime {

namespace {

const models::Attention* counted_attention(const models::LayerSpec& layer) {
  const auto* mixer = std::get_if<models::Attention>(&layer.mixer);
  return mixer != nullptr && mixer->window == 0 ? mixer : nullptr;
}

float element_at(const TensorView& view, int64_t offset) {
  switch (view.dtype) {
    case DType::F16:
      return f16_to_f32(static_cast<const uint16_t*>(view.data)[offset]);
    case DType::BF16:
      return bf16_to_f32(static_cast<const uint16_t*>(view.data)[offset]);
    case DType::F8_E4M3:
      return e4m3_to_f32(static_cast<const uint8_t*>(view.data)[offset]);
    default:
      return static_cast<const float*>(view.data)[offset];
  }
}

// Blocks [begin, end) of k[blocks, block_size, kv_heads, dim] as f32.
void read_blocks(kernels::Backend& backend, TensorView k, int64_t begin, int64_t end, float* out) {
  const TensorView blocks = k.rows(begin, end);
  if (blocks.device != Device::Cpu)
    return backend.download(TensorView::contiguous(out, DType::F32, {blocks.elements()}), blocks);
  for (int64_t b = 0; b < blocks.dim(0); ++b)
    for (int64_t slot = 0; slot < blocks.dim(1); ++slot)
      for (int64_t head = 0; head < blocks.dim(2); ++head) {
        const int64_t at = b * blocks.stride[0] + slot * blocks.stride[1] + head * blocks.stride[2];
        for (int64_t i = 0; i < blocks.dim(3); ++i) *out++ = element_at(blocks, at + i);
      }
}

// [tokens of whole blocks, kv_heads, dim]. Neighbouring blocks are read at once.
void read_keys(kernels::Backend& backend, TensorView k, std::span<const BlockId> table,
               std::vector<float>& out) {
  const int64_t block = k.dim(1) * k.dim(2) * k.dim(3);
  out.resize(table.size() * static_cast<size_t>(block));
  for (size_t i = 0, end = 0; i < table.size(); i = end) {
    end = i + 1;
    while (end < table.size() && table[end].value == table[end - 1].value + 1) ++end;
    const int64_t first = table[i].value;
    read_blocks(backend, k, first, first + static_cast<int64_t>(end - i),
                out.data() + static_cast<int64_t>(i) * block);
  }
}

// Eight sums side by side, which compilers turn into vectors.
float dot(const float* a, const float* b, int64_t count) {
  float sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int lane = 0; lane < 8; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  float sum = 0;
  for (; i < count; ++i) sum += a[i] * b[i];
  for (const float lane : sums) sum += lane;
  return sum;
}

// One head of one row: softmax over the tokens, of which `best` keeps the largest.
struct HeadPass {
  const kernels::KeyWeightLayer& layer;
  const std::vector<float>& keys;  // [tokens, kv_heads, dim]
  std::vector<float>& weights;     // [tokens]

  void run(const float* query, int64_t kv_head, std::span<float> best) const {
    const int64_t dim = layer.keys.dim(3), step = layer.keys.dim(2) * dim;
    float most = -INFINITY, sum = 0;
    for (size_t i = 0; i < best.size(); ++i) {
      float score =
          layer.scale * dot(query, keys.data() + static_cast<int64_t>(i) * step + kv_head * dim, dim);
      if (layer.softcap > 0) score = layer.softcap * std::tanh(score / layer.softcap);
      weights[i] = score;
      most = std::max(most, score);
    }
    for (size_t i = 0; i < best.size(); ++i) {
      weights[i] = std::exp(weights[i] - most);
      sum += weights[i];
    }
    for (size_t i = 0; i < best.size(); ++i) best[i] = std::max(best[i], weights[i] / sum);
  }
};

// best[rows, tokens]
void weigh_on_host(kernels::Backend& backend, std::span<float> best,
                   std::span<const kernels::KeyWeightLayer> layers, size_t rows, size_t tokens) {
  std::vector<float> keys, weights(tokens);
  for (const kernels::KeyWeightLayer& layer : layers) {
    read_keys(backend, layer.keys, layer.table, keys);
    const HeadPass pass{layer, keys, weights};
    const auto heads = static_cast<size_t>(layer.heads), dim = static_cast<size_t>(layer.keys.dim(3));
    for (size_t row = 0; row < rows; ++row)
      for (size_t head = 0; head < heads; ++head)
        pass.run(layer.queries.data() + (row * heads + head) * dim,
                 static_cast<int64_t>(head) / (layer.heads / layer.keys.dim(2)),
                 best.subspan(row * tokens, tokens));
  }
}

}  // namespace

Status PromptAttention::check(const ModelRunner& runner) {
  const models::ModelSpec& spec = runner.model().spec();
  if (runner.model().group)
    return Error{ErrorCode::Unsupported,
                 "attention of prompts is not read where several ranks compute a model"};
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (counted_attention(spec.layers[i]) == nullptr) continue;
    if (runner.memory().layers()[i].k.dtype == DType::I8)
      return Error{ErrorCode::Unsupported, "attention of prompts is not read from a KV cache of integers"};
    return {};
  }
  return Error{ErrorCode::Unsupported,
               "the model has no layer of plain attention over the whole prompt, which is to be read"};
}

void PromptAttention::add(ModelRunner& runner, size_t index) {
  const models::ModelSpec& spec = runner.model().spec();
  if (layers_.empty())
    for (size_t i = 0; i < spec.layers.size(); ++i)
      if (counted_attention(spec.layers[i]) != nullptr) layers_.push_back({.index = i, .queries = {}});
  for (Layer& layer : layers_) {
    const TensorView all = runner.queries(layer.index);
    const TensorView row = all.rows(static_cast<int64_t>(index), static_cast<int64_t>(index) + 1);
    const size_t at = layer.queries.size();
    layer.queries.resize(at + static_cast<size_t>(row.dim(1)));
    runner.model().backend->download(
        TensorView::contiguous(layer.queries.data() + at, DType::F32, {1, row.dim(1)}), row);
  }
  ++rows_;
}

// Where a layer's keys and the look-ahead's queries lie.
std::vector<kernels::KeyWeightLayer> PromptAttention::sources(ModelRunner& runner, Tables tables,
                                                              int tokens) const {
  const auto blocks =
      static_cast<size_t>((tokens + runner.memory().block_size() - 1) / runner.memory().block_size());
  std::vector<kernels::KeyWeightLayer> all;
  for (const Layer& layer : layers_) {
    const models::Attention& mixer = *counted_attention(runner.model().spec().layers[layer.index]);
    const kernels::PagedKv& kv = runner.memory().layers()[layer.index];
    all.push_back({.keys = kv.k,
                   .table = tables[static_cast<size_t>(kv.table)].first(blocks),
                   .queries = layer.queries,
                   .heads = mixer.heads,
                   .scale = mixer.scale,
                   .softcap = mixer.softcap});
  }
  return all;
}

void PromptAttention::weigh(ModelRunner& runner, Tables tables, int tokens) {
  const auto count = static_cast<size_t>(tokens);
  std::vector<float> best(rows_ * count);
  const std::vector<kernels::KeyWeightLayer> layers = sources(runner, tables, tokens);
  auto* device = dynamic_cast<kernels::KeyWeightDevice*>(runner.model().backend.get());
  if (device == nullptr || !device->weigh_keys(best, layers, static_cast<int>(rows_), tokens))
    weigh_on_host(*runner.model().backend, best, layers, rows_, count);
  weights_.assign(count, 0);
  for (size_t i = 0; i < best.size(); ++i) weights_[i % count] += best[i] / static_cast<float>(rows_);
}

}  // namespace sluice::runtime

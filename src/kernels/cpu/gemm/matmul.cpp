// GEMMs on all threads: rows are shared out, tokens are not, so a weight is read by one core only. Many
// tokens are taken in groups whose activations stay in a core's cache while its rows pass by.
#include <algorithm>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/host.h"

namespace sluice::kernels::cpu {

namespace {

constexpr int64_t kRowGroup = 8;            // rows are handed out in such groups
constexpr int64_t kSmallestTask = 1 << 15;  // multiplications; below, handing over costs more than the work
constexpr int64_t kActivationBytes = 256 * 1024;

template <class Predicate>
bool any_part(const Weight& weight, Predicate predicate) {
  return std::any_of(weight.parts.begin(), weight.parts.end(),
                     [&](const TensorView& part) { return predicate(part.dtype); });
}

bool is_weight(DType type) {
  return type != DType::I8 && type != DType::I32 && type != DType::U8;
}

void check_gemm(const TensorView& out, const TensorView& x, const Weight& weight) {
  SLUICE_CHECK_EQ(x.dim(1), weight.cols);
  SLUICE_CHECK_EQ(out.dim(1), weight.rows);
  SLUICE_CHECK_EQ(out.dim(0), x.dim(0));
  for (const TensorView& part : weight.parts) SLUICE_CHECK(is_weight(part.dtype));
}

int64_t blocks_per_row(const Weight& weight) {
  return (weight.cols + 31) / 32;
}

}  // namespace

CpuBackend::Activations CpuBackend::prepare_activations(TensorView x, const Weight& weight) {
  Activations activations;
  const int64_t per_row = blocks_per_row(weight);
  const auto needed = static_cast<size_t>(row_count(x) * per_row);
  if (any_part(weight, is_block)) {
    if (blocks_.size() < needed) blocks_.resize(needed);
    for_rows(row_count(x), weight.cols, [&](int64_t i) {
      kernels_.quantize(blocks_.data() + i * per_row, row_at<float>(x, i), per_row);
    });
    activations.blocks = blocks_.data();
  }
  if (kernels_.split != nullptr && any_part(weight, [](DType type) { return type == DType::BF16; })) {
    if (split_.size() < needed) split_.resize(needed);
    for_rows(row_count(x), weight.cols, [&](int64_t i) {
      kernels_.split(split_.data() + i * per_row, row_at<float>(x, i), weight.cols);
    });
    activations.split = split_.data();
  }
  return activations;
}

void CpuBackend::gemm_rows(TensorView out, TensorView x, const Weight& weight, Activations activations,
                           int64_t begin, int64_t end) const {
  const int64_t tokens = x.dim(0);
  const int64_t token_bytes = weight.cols * (activations.blocks == nullptr ? 4 : 2);
  const int64_t group = std::max<int64_t>(16, kActivationBytes / token_bytes / 4 * 4);
  for (int64_t token = 0; token < tokens; token += group) {
    const int64_t block = token * blocks_per_row(weight);
    int64_t first = 0;
    for (const TensorView& part : weight.parts) {
      const int64_t from = std::max(begin, first);
      const int64_t to = std::min(end, first + part.dim(0));
      if (from < to) {
        const int64_t stride = row_bytes(part.dtype, weight.cols);
        kernels_.gemm({.type = part.dtype,
                       .weights = static_cast<const uint8_t*>(part.data) + (from - first) * stride,
                       .rows = to - from,
                       .cols = weight.cols,
                       .tokens = std::min(group, tokens - token),
                       .bias = weight.bias.empty() ? nullptr : weight.bias.at<float>() + from,
                       .out = out.at<float>(token) + from,
                       .out_stride = out.stride[0],
                       .x = x.at<float>(token),
                       .x_stride = x.stride[0],
                       .blocks = activations.blocks == nullptr ? nullptr : activations.blocks + block,
                       .split = activations.split == nullptr ? nullptr : activations.split + block});
      }
      first += part.dim(0);
    }
  }
}

void CpuBackend::matmul(TensorView out, TensorView x, const Weight& weight) {
  check_gemm(out, x, weight);
  const Activations activations = prepare_activations(x, weight);
  const int64_t groups = (weight.rows + kRowGroup - 1) / kRowGroup;
  const int64_t grain = kSmallestTask / std::max<int64_t>(1, kRowGroup * weight.cols * x.dim(0)) + 1;
  pool_.for_ranges(groups, grain, [&](int64_t begin, int64_t end) {
    gemm_rows(out, x, weight, activations, begin * kRowGroup, std::min(end * kRowGroup, weight.rows));
  });
}

void CpuBackend::matmul_heads(TensorView out, TensorView x, std::span<const Weight> weights) {
  const auto heads = static_cast<int64_t>(weights.size());
  SLUICE_CHECK_EQ(x.dim(1), heads);
  SLUICE_CHECK_EQ(out.dim(1), heads);
  if (heads == 0) return;
  // All heads' activations lie one after the other, token by token within a head.
  const int64_t per_row = blocks_per_row(weights[0]);
  const int64_t per_head = x.dim(0) * per_row;
  blocks_.resize(std::max(blocks_.size(), static_cast<size_t>(heads * per_head)));
  split_.resize(std::max(split_.size(), static_cast<size_t>(heads * per_head)));
  pool_.run(static_cast<int>(heads), [&](int index) {  // one region for all heads: each is small
    const Weight& weight = weights[static_cast<size_t>(index)];
    const TensorView head_x = head_of(x, index);
    check_gemm(head_of(out, index), head_x, weight);
    const Activations activations{blocks_.data() + index * per_head, split_.data() + index * per_head};
    const bool quantize = any_part(weight, is_block);
    const bool split =
        kernels_.split != nullptr && any_part(weight, [](DType type) { return type == DType::BF16; });
    for (int64_t i = 0; i < x.dim(0); ++i) {
      if (quantize)
        kernels_.quantize(&blocks_[static_cast<size_t>(index * per_head + i * per_row)], head_x.at<float>(i),
                          per_row);
      if (split)
        kernels_.split(&split_[static_cast<size_t>(index * per_head + i * per_row)], head_x.at<float>(i),
                       weight.cols);
    }
    gemm_rows(head_of(out, index), head_x, weight, activations, 0, weight.rows);
  });
}

}  // namespace sluice::kernels::cpu

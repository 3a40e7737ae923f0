// Products on all threads: rows are shared out, tokens are not, so a weight is read by one core only. Many
// tokens are taken in groups whose activations stay in a core's cache while its rows pass by.
#include <algorithm>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/host.h"

namespace sluice::kernels::cpu {

namespace {

constexpr int64_t kRowGroup = 8;            // rows are handed out in such groups
constexpr int64_t kSmallestTask = 1 << 15;  // multiplications; below, handing over costs more than the work
constexpr int64_t kActivationBytes = 256 * 1024;

bool has_blocks(const Weight& weight) {
  return std::any_of(weight.parts.begin(), weight.parts.end(),
                     [](const TensorView& part) { return is_block(part.dtype); });
}

bool is_weight(DType type) {
  return type != DType::I8 && type != DType::I32 && type != DType::U8;
}

void check_product(const TensorView& out, const TensorView& x, const Weight& weight) {
  SLUICE_CHECK_EQ(x.dim(1), weight.cols);
  SLUICE_CHECK_EQ(out.dim(1), weight.rows);
  SLUICE_CHECK_EQ(out.dim(0), x.dim(0));
  for (const TensorView& part : weight.parts) SLUICE_CHECK(is_weight(part.dtype));
}

}  // namespace

void CpuBackend::prepare_activations(TensorView x, const Weight& weight,
                                     std::vector<ActivationBlock>& blocks) {
  if (!has_blocks(weight)) return;
  const int64_t per_row = weight.cols / 32;
  const auto needed = static_cast<size_t>(row_count(x) * per_row);
  if (blocks.size() < needed) blocks.resize(needed);
  for_rows(row_count(x), weight.cols,
           [&](int64_t i) { kernels_.quantize(blocks.data() + i * per_row, row_at<float>(x, i), per_row); });
}

void CpuBackend::product_rows(TensorView out, TensorView x, const Weight& weight,
                              const ActivationBlock* blocks, int64_t begin, int64_t end) const {
  const int64_t tokens = x.dim(0);
  const int64_t token_bytes = weight.cols * (blocks == nullptr ? 4 : 2);
  const int64_t group = std::max<int64_t>(16, kActivationBytes / token_bytes / 4 * 4);
  for (int64_t token = 0; token < tokens; token += group) {
    int64_t first = 0;
    for (const TensorView& part : weight.parts) {
      const int64_t from = std::max(begin, first);
      const int64_t to = std::min(end, first + part.dim(0));
      if (from < to) {
        const int64_t stride = row_bytes(part.dtype, weight.cols);
        kernels_.product({.type = part.dtype,
                          .weights = static_cast<const uint8_t*>(part.data) + (from - first) * stride,
                          .rows = to - from,
                          .cols = weight.cols,
                          .tokens = std::min(group, tokens - token),
                          .bias = weight.bias.empty() ? nullptr : weight.bias.at<float>() + from,
                          .out = out.at<float>(token) + from,
                          .out_stride = out.stride[0],
                          .x = x.at<float>(token),
                          .x_stride = x.stride[0],
                          .blocks = blocks == nullptr ? nullptr : blocks + token * (weight.cols / 32)});
      }
      first += part.dim(0);
    }
  }
}

void CpuBackend::matmul(TensorView out, TensorView x, const Weight& weight) {
  check_product(out, x, weight);
  prepare_activations(x, weight, blocks_);
  const ActivationBlock* blocks = has_blocks(weight) ? blocks_.data() : nullptr;
  const int64_t groups = (weight.rows + kRowGroup - 1) / kRowGroup;
  const int64_t grain = kSmallestTask / std::max<int64_t>(1, kRowGroup * weight.cols * x.dim(0)) + 1;
  pool_.for_ranges(groups, grain, [&](int64_t begin, int64_t end) {
    product_rows(out, x, weight, blocks, begin * kRowGroup, std::min(end * kRowGroup, weight.rows));
  });
}

void CpuBackend::matmul_heads(TensorView out, TensorView x, std::span<const Weight> weights) {
  const auto heads = static_cast<int64_t>(weights.size());
  SLUICE_CHECK_EQ(x.dim(1), heads);
  if (heads == 0) return;
  // One region for all heads: each is small.
  const int64_t per_head = x.dim(0) * (x.dim(2) / 32);
  const bool any_blocks = std::any_of(weights.begin(), weights.end(), has_blocks);
  if (any_blocks && blocks_.size() < static_cast<size_t>(heads * per_head)) {
    blocks_.resize(static_cast<size_t>(heads * per_head));
  }
  pool_.run(static_cast<int>(heads), [&](int index) {
    const Weight& weight = weights[static_cast<size_t>(index)];
    const TensorView head_x = head_of(x, index);
    const TensorView head_out = head_of(out, index);
    check_product(head_out, head_x, weight);
    ActivationBlock* blocks = has_blocks(weight) ? blocks_.data() + index * per_head : nullptr;
    for (int64_t i = 0; i < x.dim(0) && blocks != nullptr; ++i) {
      kernels_.quantize(blocks + i * (weight.cols / 32), head_x.at<float>(i), weight.cols / 32);
    }
    product_rows(head_out, head_x, weight, blocks, 0, weight.rows);
  });
}

}  // namespace sluice::kernels::cpu

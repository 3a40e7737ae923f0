// Heads normed, rotated and stored in one operation against the reference's plain ones.
#include "kernels/head_norm.h"
#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

using kernels::PagedKv;
using kernels::RaggedBatch;

class HeadNormTest : public DeviceTest {
 protected:
  static constexpr int kBlock = 16;
  int heads_ = 6, kv_heads_ = 2, tokens_ = 37, blocks_ = 3;

  PagedKv cache_of(kernels::Backend& backend, int dim, std::vector<kernels::Memory>& memory) const {
    PagedKv kv{};
    for (TensorView* side : {&kv.k, &kv.v}) {
      memory.push_back(backend.allocate_kv(DType::BF16, {blocks_, kBlock, kv_heads_, dim}));
      *side = memory.back().view;
    }
    return kv;
  }

  kernels::QkvHeads heads_in(const TensorView& all, int dim) const {
    return {all.columns_as_heads(0, heads_, dim), all.columns_as_heads(heads_ * dim, kv_heads_, dim),
            all.columns_as_heads((heads_ + kv_heads_) * dim, kv_heads_, dim)};
  }

  // pairs: of a head, that are rotated.
  void run(int dim, int pairs, kernels::RopeStyle style, bool gains) {
    std::vector<int32_t> begin{0, tokens_}, positions, blocks;
    for (int i = 0; i < blocks_; ++i) blocks.push_back(blocks_ - 1 - i);
    for (int i = 0; i < tokens_; ++i) positions.push_back(i);
    const std::vector<RaggedBatch::BlockTable> tables{{blocks, blocks_}};
    const RaggedBatch batch{begin, positions, tables, {}};
    std::vector<kernels::Memory> memory;
    const PagedKv host_kv = cache_of(ref(), dim, memory), device_kv = cache_of(gpu(), dim, memory);
    const Both x = random(tokens_, (heads_ + 2 * kv_heads_) * dim), q_gain = vector(dim),
               k_gain = vector(dim);
    const Both frequencies = vector(pairs, 0.2f);
    HostTensor angles = HostTensor::make(DType::F32, {tokens_, pairs, 2});
    const kernels::Memory turn = gpu().allocate(DType::F32, {tokens_, pairs, 2});
    const auto table = [&](const TensorView& f) {
      return kernels::RopeTable{TensorView::contiguous(f.data, DType::F32, {1, pairs}, f.device)};
    };
    gpu().begin(batch);
    ref().rope_angles(angles.view, batch, table(frequencies.host));
    gpu().rope_angles(turn.view, batch, table(frequencies.device));
    const kernels::QkvHeads host = heads_in(x.host, dim), device = heads_in(x.device, dim);
    ref().rms_norm(host.q, host.q, gains ? q_gain.host : TensorView{}, 1e-6f);
    ref().rms_norm(host.k, host.k, gains ? k_gain.host : TensorView{}, 1e-6f);
    ref().rope_write_kv(host_kv, host, angles.view, style, batch);
    auto& one = dynamic_cast<kernels::HeadNormDevice&>(gpu());
    ASSERT_TRUE(one.norm_rope_write_kv(
        device_kv,
        {device, gains ? q_gain.device : TensorView{}, gains ? k_gain.device : TensorView{}, 1e-6f},
        turn.view, style, batch));
    EXPECT_LT(error(x.host.columns(0, heads_ * dim), x.device.columns(0, heads_ * dim)), kTolerance) << dim;
    // Results beside something else, as where a gate stands before them.
    Both wide = zeros(tokens_, 2 * heads_ * dim);
    const auto behind = [&](const TensorView& view) { return view.columns(heads_ * dim, 2 * heads_ * dim); };
    kernels::AttentionShape shape;
    shape.heads = heads_, shape.kv_heads = kv_heads_, shape.key_dim = shape.value_dim = dim,
    shape.scale = 0.1f;
    ref().attend(wide.host.columns_as_heads(heads_ * dim, heads_, dim), host.q, host_kv, batch, shape);
    gpu().attend(wide.device.columns_as_heads(heads_ * dim, heads_, dim), device.q, device_kv, batch, shape);
    EXPECT_LT(error(behind(wide.host), behind(wide.device)), 2 * kTolerance) << dim;
  }
};

TEST_F(HeadNormTest, NormRotateAndStoreInOne) {
  for (const int dim : {64, 128, 256})
    for (const auto style : {kernels::RopeStyle::NeoX, kernels::RopeStyle::GptJ})
      for (const bool gains : {true, false})
        for (const int pairs : {dim / 2, dim / 8}) run(dim, pairs, style, gains);
}

// So many heads that a lane has several.
TEST_F(HeadNormTest, OfManyTokens) {
  heads_ = 60, kv_heads_ = 20, tokens_ = 170, blocks_ = 11;
  for (const bool gains : {true, false}) run(128, 64, kernels::RopeStyle::NeoX, gains);
}

}  // namespace
}  // namespace sluice::cuda_test

// Heads normed, rotated and stored in one operation against the reference's plain ones.
#include "kernels/head_norm.h"
#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

using kernels::PagedKv;
using kernels::RaggedBatch;

class HeadNormTest : public DeviceTest {
 protected:
  static constexpr int kHeads = 6, kKvHeads = 2, kBlock = 16, kTokens = 37, kBlocks = 3;

  static PagedKv cache_of(kernels::Backend& backend, int dim, std::vector<kernels::Memory>& memory) {
    PagedKv kv{};
    for (TensorView* side : {&kv.k, &kv.v}) {
      memory.push_back(backend.allocate_kv(DType::BF16, {kBlocks, kBlock, kKvHeads, dim}));
      *side = memory.back().view;
    }
    return kv;
  }

  static kernels::QkvHeads heads_in(const TensorView& all, int dim) {
    return {all.columns_as_heads(0, kHeads, dim), all.columns_as_heads(kHeads * dim, kKvHeads, dim),
            all.columns_as_heads((kHeads + kKvHeads) * dim, kKvHeads, dim)};
  }

  void run(int dim, kernels::RopeStyle style, bool gains) {
    std::vector<int32_t> begin{0, kTokens}, positions, blocks{2, 0, 1};
    for (int i = 0; i < kTokens; ++i) positions.push_back(i);
    const std::vector<RaggedBatch::BlockTable> tables{{blocks, kBlocks}};
    const RaggedBatch batch{begin, positions, tables, {}};
    std::vector<kernels::Memory> memory;
    const PagedKv host_kv = cache_of(ref(), dim, memory), device_kv = cache_of(gpu(), dim, memory);
    const Both x = random(kTokens, (kHeads + 2 * kKvHeads) * dim), q_gain = vector(dim), k_gain = vector(dim);
    const Both frequencies = vector(dim / 2, 0.2f);
    HostTensor angles = HostTensor::make(DType::F32, {kTokens, dim / 2, 2});
    const kernels::Memory turn = gpu().allocate(DType::F32, {kTokens, dim / 2, 2});
    const auto table = [&](const TensorView& f) {
      return kernels::RopeTable{TensorView::contiguous(f.data, DType::F32, {1, dim / 2}, f.device)};
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
    EXPECT_LT(error(x.host.columns(0, kHeads * dim), x.device.columns(0, kHeads * dim)), kTolerance) << dim;
    Both out = zeros(kTokens, kHeads * dim);
    kernels::AttentionShape shape;
    shape.heads = kHeads, shape.kv_heads = kKvHeads, shape.key_dim = shape.value_dim = dim,
    shape.scale = 0.1f;
    ref().attend(heads_of(out.host, kHeads), host.q, host_kv, batch, shape);
    gpu().attend(heads_of(out.device, kHeads), device.q, device_kv, batch, shape);
    EXPECT_LT(error(out.host, out.device), 2 * kTolerance) << dim;
  }
};

TEST_F(HeadNormTest, NormRotateAndStoreInOne) {
  for (const int dim : {64, 128, 256})
    for (const auto style : {kernels::RopeStyle::NeoX, kernels::RopeStyle::GptJ})
      for (const bool gains : {true, false}) run(dim, style, gains);
}

}  // namespace
}  // namespace sluice::cuda_test

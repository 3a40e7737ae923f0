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

  // pairs: of a head, that are rotated.
  void run(int dim, int pairs, kernels::RopeStyle style, bool gains) {
    std::vector<int32_t> begin{0, kTokens}, positions, blocks{2, 0, 1};
    for (int i = 0; i < kTokens; ++i) positions.push_back(i);
    const std::vector<RaggedBatch::BlockTable> tables{{blocks, kBlocks}};
    const RaggedBatch batch{begin, positions, tables, {}};
    std::vector<kernels::Memory> memory;
    const PagedKv host_kv = cache_of(ref(), dim, memory), device_kv = cache_of(gpu(), dim, memory);
    const Both x = random(kTokens, (kHeads + 2 * kKvHeads) * dim), q_gain = vector(dim), k_gain = vector(dim);
    const Both frequencies = vector(pairs, 0.2f);
    HostTensor angles = HostTensor::make(DType::F32, {kTokens, pairs, 2});
    const kernels::Memory turn = gpu().allocate(DType::F32, {kTokens, pairs, 2});
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
    EXPECT_LT(error(x.host.columns(0, kHeads * dim), x.device.columns(0, kHeads * dim)), kTolerance) << dim;
    // Results beside something else, as where a gate stands before them.
    Both wide = zeros(kTokens, 2 * kHeads * dim);
    const auto behind = [&](const TensorView& view) { return view.columns(kHeads * dim, 2 * kHeads * dim); };
    kernels::AttentionShape shape;
    shape.heads = kHeads, shape.kv_heads = kKvHeads, shape.key_dim = shape.value_dim = dim,
    shape.scale = 0.1f;
    ref().attend(wide.host.columns_as_heads(kHeads * dim, kHeads, dim), host.q, host_kv, batch, shape);
    gpu().attend(wide.device.columns_as_heads(kHeads * dim, kHeads, dim), device.q, device_kv, batch, shape);
    EXPECT_LT(error(behind(wide.host), behind(wide.device)), 2 * kTolerance) << dim;
  }
};

TEST_F(HeadNormTest, NormRotateAndStoreInOne) {
  for (const int dim : {64, 128, 256})
    for (const auto style : {kernels::RopeStyle::NeoX, kernels::RopeStyle::GptJ})
      for (const bool gains : {true, false})
        for (const int pairs : {dim / 2, dim / 8}) run(dim, pairs, style, gains);
}

}  // namespace
}  // namespace sluice::cuda_test

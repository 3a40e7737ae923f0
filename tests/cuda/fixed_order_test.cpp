// The deterministic back-end: a token's results have the same bits whatever else is in the step, and they are right.
#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

class FixedOrderTest : public DeviceTest {
 protected:
  static kernels::CudaBackend& fixed(kernels::WeightStorage weights) {
    static std::unique_ptr<kernels::CudaBackend> made[2];
    auto& one = made[static_cast<size_t>(weights)];
    if (one == nullptr) {
      kernels::CudaOptions options;
      options.weights = weights;
      options.deterministic = true;
      one = std::move(*kernels::make_cuda_backend(options));
    }
    return *one;
  }
  static std::vector<float> values(kernels::CudaBackend& backend, const TensorView& view) {
    HostTensor host = HostTensor::make(DType::F32, {view.elements()});
    backend.download(host.view, view);
    return {host.view.at<float>(), host.view.at<float>() + view.elements()};
  }
};

TEST_F(FixedOrderTest, GemmsAndNormsOfAnyNumberOfTokens) {
  for (auto storage : {kernels::WeightStorage::AsStored, kernels::WeightStorage::Fp8}) {
    kernels::CudaBackend& backend = fixed(storage);
    for (auto [type, rows, cols] : {std::tuple<DType, int64_t, int64_t>{DType::BF16, 6144, 512},
                                    {DType::BF16, 2048, 4096},
                                    {DType::BF16, 1100, 72},
                                    {DType::Q4_0, 1024, 256}}) {
      const BothWeight w = weight({type}, rows, cols, false);
      const kernels::Weight prepared = backend.prepare(w.host);
      const int64_t most = 1500;
      const Both x = random(most, cols), gain = vector(cols);
      const kernels::Memory out = backend.allocate(DType::BF16, {most, rows}),
                            normed = backend.allocate(DType::BF16, {most, cols});
      std::vector<float> first, first_norm;
      for (int64_t n :
           {most, int64_t{1}, int64_t{2}, int64_t{9}, int64_t{17}, int64_t{32}, int64_t{33}, int64_t{100}}) {
        backend.matmul(out.view.rows(0, n), x.device.rows(0, n), prepared);
        backend.rms_norm(normed.view.rows(0, n), x.device.rows(0, n), gain.device, 1e-5f);
        const std::vector<float> got = values(backend, out.view.rows(0, n)),
                                 norms = values(backend, normed.view.rows(0, n));
        if (first.empty()) first = got, first_norm = norms;
        EXPECT_TRUE(std::equal(got.begin(), got.end(), first.begin())) << name(type) << " n " << n;
        EXPECT_TRUE(std::equal(norms.begin(), norms.end(), first_norm.begin())) << " n " << n;
      }
      if (storage == kernels::WeightStorage::Fp8) continue;
      Both few = random(40, cols), result = zeros(40, rows);
      gpu().synchronize();
      ref().matmul(result.host, few.host, w.host);
      backend.matmul(result.device, few.device, prepared);
      backend.synchronize();
      EXPECT_LT(error(result.host, result.device), kTolerance) << name(type) << " rows " << rows;
    }
  }
}

// Tokens of a prompt in one step, then each alone with the cache as it was left.
TEST_F(FixedOrderTest, AttentionInAnyStep) {
  kernels::CudaBackend& backend = fixed(kernels::WeightStorage::AsStored);
  constexpr int kHeads = 8, kKvHeads = 2, kDim = 64, kLength = 200, kBlock = 16, kWidth = 13;
  const kernels::Memory k = backend.allocate(DType::BF16, {kWidth, kBlock, kKvHeads, kDim}),
                        v = backend.allocate(DType::BF16, {kWidth, kBlock, kKvHeads, kDim});
  const kernels::PagedKv kv{k.view, v.view, {}, {}, 0};
  const Both q = random(kLength, kHeads * kDim), key = random(kLength, kKvHeads * kDim),
             value = random(kLength, kKvHeads * kDim);
  Both out = zeros(kLength, kHeads * kDim), single = zeros(1, kHeads * kDim);
  kernels::AttentionShape shape;
  shape.heads = kHeads, shape.kv_heads = kKvHeads, shape.key_dim = shape.value_dim = kDim,
  shape.scale = 0.125f;
  std::vector<int32_t> positions(kLength), blocks(kWidth), all{0, kLength}, one{0, 1};
  for (int i = 0; i < kLength; ++i) positions[static_cast<size_t>(i)] = i;
  for (int i = 0; i < kWidth; ++i) blocks[static_cast<size_t>(i)] = (i * 5) % kWidth;
  const std::vector<kernels::RaggedBatch::BlockTable> tables{{blocks, kWidth}};
  const kernels::RaggedBatch prompt{all, positions, tables};
  gpu().synchronize();
  backend.begin(prompt);
  backend.write_kv(kv, heads_of(key.device, kKvHeads), heads_of(value.device, kKvHeads), prompt);
  backend.attend(heads_of(out.device, kHeads), heads_of(q.device, kHeads), kv, prompt, shape);
  const std::vector<float> together = values(backend, out.device);
  for (int position : {0, 1, 63, 64, 130, 199}) {
    const std::vector<int32_t> here{position};
    const kernels::RaggedBatch step{one, here, tables};
    backend.begin(step);
    backend.attend(heads_of(single.device, kHeads), heads_of(q.device.rows(position, position + 1), kHeads),
                   kv, step, shape);
    const std::vector<float> alone = values(backend, single.device);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + position * kHeads * kDim))
        << position;
  }
}

}  // namespace
}  // namespace sluice::cuda_test

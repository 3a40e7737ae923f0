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
      kernels::CudaOptions wanted = options();
      wanted.weights = weights;
      wanted.deterministic = true;
      one = std::move(*kernels::make_cuda_backend(wanted));
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

// Gate, up and Silu in one: another kernel above 32 tokens, others again above 64, 128 and 1,024.
TEST_F(FixedOrderTest, GatedGemmsOfAnyNumberOfTokens) {
  kernels::CudaBackend& backend = fixed(kernels::WeightStorage::AsStored);
  for (auto [inner, cols] : {std::pair<int64_t, int64_t>{3000, 512}, {14336, 320}, {200, 4096}}) {
    const BothWeight w = weight({DType::BF16, DType::BF16}, inner, cols, false);
    const kernels::Weight prepared = backend.prepare(w.host);
    const int64_t most = 1300;
    const Both x = random(most, cols);
    const kernels::Memory out = backend.allocate(DType::BF16, {most, inner}),
                          wide = backend.allocate(DType::BF16, {most, 2 * inner});
    std::vector<float> first;
    for (int64_t n :
         {most, int64_t{1}, int64_t{8}, int64_t{9}, int64_t{32}, int64_t{33}, int64_t{65}, int64_t{129}}) {
      gpu().synchronize();
      backend.matmul_gated(out.view.rows(0, n), wide.view.rows(0, n), x.device.rows(0, n), prepared,
                           kernels::Activation::Silu);
      const std::vector<float> got = values(backend, out.view.rows(0, n));
      if (first.empty()) first = got;
      EXPECT_TRUE(std::equal(got.begin(), got.end(), first.begin())) << "inner " << inner << " n " << n;
    }
    Both few = random(40, cols), result = zeros(40, inner), scratch = zeros(40, 2 * inner);
    gpu().synchronize();
    ref().matmul_gated(result.host, scratch.host, few.host, w.host, kernels::Activation::Silu);
    backend.matmul_gated(result.device, scratch.device, few.device, prepared, kernels::Activation::Silu);
    backend.synchronize();
    EXPECT_LT(error(result.host, result.device), kTolerance) << "inner " << inner;
  }
}

// Tokens of a prompt in one step, then each alone with the cache as it was left, then in parts that begin anywhere.
class FixedAttentionTest : public FixedOrderTest {
 protected:
  static constexpr int kLength = 333, kBlock = 16, kWidth = 21;
  struct Case {
    int heads, kv_heads, dim;
    int window = 0;
    float softcap = 0.0f;
    DType type = DType::BF16;
  };
  // Positions [first, last) in a step of their own; the cache holds all.
  std::vector<float> run(kernels::CudaBackend& backend, const kernels::PagedKv& kv, const Both& q,
                         const kernels::AttentionShape& shape, int first, int last) {
    Both out = zeros(last - first, int64_t{shape.heads} * shape.key_dim);
    std::vector<int32_t> positions, begin{0, last - first};
    for (int p = first; p < last; ++p) positions.push_back(p);
    const std::vector<kernels::RaggedBatch::BlockTable> tables{{blocks_, kWidth}};
    const kernels::RaggedBatch step{begin, positions, tables};
    gpu().synchronize();
    backend.begin(step);
    backend.attend(heads_of(out.device, shape.heads), heads_of(q.device.rows(first, last), shape.heads), kv,
                   step, shape);
    return values(backend, out.device);
  }
  void check(const Case& c, bool heads_together) {
    kernels::CudaBackend& backend = fixed(kernels::WeightStorage::AsStored);
    blocks_.resize(kWidth);
    for (int i = 0; i < kWidth; ++i) blocks_[static_cast<size_t>(i)] = (i * 5) % kWidth;
    const auto cache = [&](kernels::Backend& on, DType type) {
      return heads_together ? on.allocate_kv(type, {kWidth, kBlock, c.kv_heads, c.dim})
                            : on.allocate(type, {kWidth, kBlock, c.kv_heads, c.dim});
    };
    const kernels::Memory k = cache(backend, c.type), v = cache(backend, c.type),
                          host_k = cache(ref(), DType::F32), host_v = cache(ref(), DType::F32);
    const kernels::PagedKv kv{k.view, v.view, {}, {}, 0}, host_kv{host_k.view, host_v.view, {}, {}, 0};
    const Both q = random(kLength, int64_t{c.heads} * c.dim),
               key = random(kLength, int64_t{c.kv_heads} * c.dim),
               value = random(kLength, int64_t{c.kv_heads} * c.dim);
    kernels::AttentionShape shape;
    shape.heads = c.heads, shape.kv_heads = c.kv_heads, shape.key_dim = shape.value_dim = c.dim;
    shape.scale = 0.125f, shape.window = c.window, shape.softcap = c.softcap;
    std::vector<int32_t> positions(kLength), all{0, kLength};
    for (int i = 0; i < kLength; ++i) positions[static_cast<size_t>(i)] = i;
    const std::vector<kernels::RaggedBatch::BlockTable> tables{{blocks_, kWidth}};
    const kernels::RaggedBatch prompt{all, positions, tables};
    gpu().synchronize();
    backend.begin(prompt);
    backend.write_kv(kv, heads_of(key.device, c.kv_heads), heads_of(value.device, c.kv_heads), prompt);
    const std::vector<float> together = run(backend, kv, q, shape, 0, kLength);
    const auto width = static_cast<size_t>(c.heads) * static_cast<size_t>(c.dim);
    for (auto [first, last] : {std::pair{0, 1},
                               {1, 2},
                               {63, 64},
                               {64, 65},
                               {130, 131},
                               {332, 333},
                               {0, 100},
                               {61, 70},
                               {100, 333},
                               {127, 129},
                               {250, 297}}) {
      const std::vector<float> apart = run(backend, kv, q, shape, first, last);
      EXPECT_TRUE(
          std::equal(apart.begin(), apart.end(), together.begin() + static_cast<int64_t>(width) * first))
          << first << " to " << last << ", dim " << c.dim << " heads " << c.heads << "/" << c.kv_heads
          << " window " << c.window;
    }
    if (c.type != DType::BF16) return;
    Both out = zeros(kLength, int64_t{c.heads} * c.dim);
    ref().write_kv(host_kv, heads_of(key.host, c.kv_heads), heads_of(value.host, c.kv_heads), prompt);
    ref().attend(heads_of(out.host, c.heads), heads_of(q.host, c.heads), host_kv, prompt, shape);
    gpu().synchronize();
    backend.begin(prompt);
    backend.attend(heads_of(out.device, c.heads), heads_of(q.device, c.heads), kv, prompt, shape);
    backend.synchronize();
    EXPECT_LT(error(out.host, out.device), kTolerance) << "dim " << c.dim << " heads " << c.heads;
  }

 private:
  std::vector<int32_t> blocks_;
};

TEST_F(FixedAttentionTest, SlotsOfAHeadTogether) {
  for (const Case& c : {Case{8, 2, 128},
                        {8, 8, 64},
                        {16, 2, 128},
                        {10, 2, 64},
                        {6, 2, 128},
                        {8, 2, 64, 100},
                        {8, 2, 128, 0, 20.0f},
                        {8, 2, 128, 0, 0.0f, DType::F8_E4M3}})
    check(c, true);
}

TEST_F(FixedAttentionTest, HeadsOfASlotTogether) {
  check({8, 2, 64}, false);
}

}  // namespace
}  // namespace sluice::cuda_test

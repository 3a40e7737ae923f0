// The largest weights that heads give a prompt's tokens, against plain loops over the keys.
#include "kernels/key_weights.h"

#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

using kernels::KeyWeightLayer;

class KeyWeightsTest : public DeviceTest {
 protected:
  static constexpr int kBlocks = 7, kBlock = 16, kKvHeads = 2, kHeads = 6, kRows = 3, kTokens = 75;
  const std::vector<BlockId> table_{{5}, {0}, {3}, {6}, {2}};

  // keys: host [blocks, block, kv_heads, dim]
  std::vector<float> expected(const std::vector<KeyWeightLayer>& layers,
                              const std::vector<std::vector<float>>& keys, int dim) const {
    std::vector<float> largest(kRows * kTokens);
    for (size_t l = 0; l < layers.size(); ++l)
      for (int row = 0; row < kRows; ++row)
        for (int head = 0; head < kHeads; ++head) {
          std::vector<double> weights;
          double sum = 0;
          for (int token = 0; token < kTokens; ++token) {
            const int at =
                (table_[static_cast<size_t>(token / kBlock)].value * kBlock + token % kBlock) * kKvHeads +
                head / (kHeads / kKvHeads);
            double score = 0;
            for (int i = 0; i < dim; ++i)
              score += layers[l].queries[static_cast<size_t>((row * kHeads + head) * dim + i)] *
                       keys[l][static_cast<size_t>(at * dim + i)];
            score *= layers[l].scale;
            if (layers[l].softcap > 0) score = layers[l].softcap * std::tanh(score / layers[l].softcap);
            weights.push_back(std::exp(score));
            sum += weights.back();
          }
          for (int token = 0; token < kTokens; ++token) {
            float& best = largest[static_cast<size_t>(row * kTokens + token)];
            best = std::max(best, static_cast<float>(weights[static_cast<size_t>(token)] / sum));
          }
        }
    return largest;
  }
};

TEST_F(KeyWeightsTest, AreTheLargestOverHeadsAndLayers) {
  for (const int dim : {64, 80, 128}) {
    std::vector<KeyWeightLayer> layers;
    std::vector<std::vector<float>> queries(2), keys(2);
    std::vector<kernels::Memory> memory;
    for (size_t l = 0; l < 2; ++l) {
      const Both k = random(kBlocks * kBlock, kKvHeads * dim);
      const TensorView host = k.host;
      for (int64_t i = 0; i < host.elements(); ++i) keys[l].push_back(host.at<float>()[i]);
      HostTensor narrow = HostTensor::make(DType::BF16, {kBlocks, kBlock, kKvHeads, dim});
      for (size_t i = 0; i < keys[l].size(); ++i) {
        narrow.view.at<uint16_t>()[i] = f32_to_bf16(keys[l][i]);
        keys[l][i] = bf16_to_f32(narrow.view.at<uint16_t>()[i]);
      }
      memory.push_back(gpu().upload(narrow.view));
      for (int i = 0; i < kRows * kHeads * dim; ++i) queries[l].push_back(normal());
      layers.push_back({memory.back().view, table_, queries[l], kHeads, 0.2f, l == 1 ? 3.0f : 0.0f});
    }
    std::vector<float> largest(kRows * kTokens);
    ASSERT_TRUE(dynamic_cast<kernels::KeyWeightDevice&>(gpu()).weigh_keys(largest, layers, kRows, kTokens));
    const std::vector<float> wanted = expected(layers, keys, dim);
    for (size_t i = 0; i < wanted.size(); ++i)
      ASSERT_NEAR(largest[i], wanted[i], 1e-4f + 1e-3f * wanted[i]) << dim;
  }
}

}  // namespace
}  // namespace sluice::cuda_test

#include "lab/roofline.h"

#include <gtest/gtest.h>

#include "lab/report.h"

namespace sluice::lab {
namespace {

Limits limits() {
  return {.read = 10e9, .multiply = {400e9, 200e9, 100e9}};
}

// One layer of width 64: attention with 4 heads of 16 that share 2 KV heads, a gated feed-forward of 128, 32 tokens in
// the vocabulary; q, k, v in blocks of Q8_0, all else in f32. The weights have no content.
models::Model tiny_model() {
  models::Model model;
  models::ModelSpec& spec = model.files.spec;
  spec.dim = 64;
  spec.vocab = 32;
  spec.layers.push_back({.mixer = models::Attention{.heads = 4, .kv_heads = 2, .head_dim = 16},
                         .ffn = models::DenseFfn{.inner = 128}});
  const auto weight = [](DType type, int64_t rows, int64_t cols) {
    static std::byte somewhere;
    kernels::Weight out;
    out.parts = {TensorView::contiguous(&somewhere, type, {rows, cols})};
    out.rows = rows;
    out.cols = cols;
    return out;
  };
  models::LayerWeights layer;
  layer.mixer =
      models::AttentionWeights{.qkv = weight(DType::Q8_0, 128, 64), .out = weight(DType::F32, 64, 64)};
  layer.ffn =
      models::DenseWeights{.gate_up = weight(DType::F32, 256, 64), .down = weight(DType::F32, 64, 128)};
  model.weights.layers.push_back(std::move(layer));
  model.weights.output = weight(DType::F32, 32, 64);
  return model;
}

TEST(StepCost, ReadsWeightsOnceAndKeysAndValuesOfEachSequence) {
  const StepCost cost = step_cost(tiny_model(), DType::F16, {.sequences = 3, .tokens = 1, .depth = 9});
  const double weights = 128 * 64 / 32 * 34 + 4.0 * (64 * 64 + 256 * 64 + 64 * 128 + 32 * 64);
  const double kv = 3 * 10 * 2 * (16 + 16) * 2.0;
  EXPECT_DOUBLE_EQ(cost.bytes, weights + kv);
}

TEST(StepCost, MultipliesEachTokenWithTheLayersAndTheLastOfEachSequenceWithTheOutput) {
  const StepCost cost = step_cost(tiny_model(), DType::F16, {.sequences = 2, .tokens = 5, .depth = 0});
  EXPECT_DOUBLE_EQ(cost.operations[static_cast<size_t>(Arithmetic::Int8)], 2.0 * 10 * 128 * 64);
  EXPECT_DOUBLE_EQ(cost.operations[static_cast<size_t>(Arithmetic::F32)],
                   2.0 * 10 * (64 * 64 + 256 * 64 + 64 * 128) + 2.0 * 2 * 32 * 64);
  // 1 + 2 + … + 5 keys for each sequence, 4 heads, 16 for the score and 16 for the value.
  EXPECT_DOUBLE_EQ(cost.attention_operations, 2.0 * 2 * 15 * 4 * 32);
}

// One layer that attends to 100 positions, which 8 index heads of 16 choose.
TEST(StepCost, ReadsChosenLatentsAndTheIndexKeysOfAllPositions) {
  models::Model model;
  model.files.spec.dim = 64;
  model.files.spec.layers.push_back({.mixer = models::LatentAttention{.heads = 4,
                                                                      .q_latent = 32,
                                                                      .latent = 48,
                                                                      .nope_dim = 8,
                                                                      .rope_dim = 16,
                                                                      .value_dim = 8,
                                                                      .indexer = {100, 8, 16}},
                                     .ffn = models::NoFfn{}});
  const StepCost cost = step_cost(model, DType::F16, {.sequences = 3, .tokens = 1, .depth = 999});
  EXPECT_DOUBLE_EQ(cost.bytes, 3 * 2.0 * (100 * 64 + 1000 * 16));
  EXPECT_DOUBLE_EQ(cost.attention_operations, 3 * 2.0 * (4 * (64 + 48) * 100.0 + 8 * 16 * 1000.0));
  const StepCost prompt = step_cost(model, DType::F16, {.sequences = 1, .tokens = 50, .depth = 0});
  EXPECT_DOUBLE_EQ(prompt.bytes, 2.0 * 50 * (64 + 16));
}

TEST(StepFloor, IsTheLongerOfReadingAndMultiplying) {
  const Floor reading = step_floor({.bytes = 10e9, .operations = {40e9, 0, 0}}, limits());
  EXPECT_DOUBLE_EQ(reading.seconds, 1.0);
  EXPECT_EQ(reading.bound, Bound::Memory);
  const Floor multiplying =
      step_floor({.bytes = 10e9, .operations = {400e9, 0, 100e9}, .attention_operations = 200e9}, limits());
  EXPECT_DOUBLE_EQ(multiplying.seconds, 3.0);
  EXPECT_EQ(multiplying.bound, Bound::Compute);
}

TEST(MeasureLimits, FindsAMachineThatMultipliesAndReads) {
  const Limits found = measure_limits(1);
  EXPECT_GT(found.read, 1e8);
  for (double rate : found.multiply) EXPECT_GT(rate, 1e8);
}

TEST(SpeedTest, IsNamedAfterWhatItDoes) {
  using Kind = SpeedTest::Kind;
  EXPECT_EQ((SpeedTest{Kind::Prompt, 512, 1, 0}.name()), "pp512");
  EXPECT_EQ((SpeedTest{Kind::Answer, 128, 8, 4096}.name()), "tg128 x8 @ d4096");
}

TEST(Report, SetsTheMedianBesideItsFloor) {
  const SpeedResult result{{SpeedTest::Kind::Answer, 10, 2, 0}, {0.9, 1.0, 1.5}, Floor{0.5, Bound::Memory}};
  EXPECT_DOUBLE_EQ(result.median(), 1.0);
  EXPECT_DOUBLE_EQ(result.rate(result.median()), 20.0);
  EXPECT_DOUBLE_EQ(result.spread(), 0.3);
  const std::string table = to_markdown({}, {result});
  EXPECT_NE(table.find("| tg10 x2 | 20.0 | 30 % | 100.00 | 50.00 | 50 % | memory |"), std::string::npos)
      << table;
  const json::object object = to_json({}, {result});
  EXPECT_DOUBLE_EQ(object.at("tests").at(0).at("reached").as_double(), 0.5);
}

}  // namespace
}  // namespace sluice::lab

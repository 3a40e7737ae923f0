#include "models/loading/fold.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <cstring>

#include <numeric>

#include "models/loading/names.h"
#include "models/quantized/unpack.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace sluice::models {

using testing::ElementsAre;
using testing::HasSubstr;

namespace {

// [rows, cols] of 0, 1, 2, ...
HostTensor counting(int64_t rows, int64_t cols) {
  HostTensor tensor = HostTensor::make(DType::F32, {rows, cols});
  std::iota(tensor.view.at<float>(), tensor.view.at<float>() + rows * cols, 0.0f);
  return tensor;
}

std::vector<float> values(const HostTensor& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.view.elements()));
  dequantize_row(tensor.view.dtype, tensor.view.data, out.data(), tensor.view.elements());
  return out;
}

std::vector<float> folded(const HostTensor& tensor, Fold fold, const QkvShape& shape = {}) {
  const Result<HostTensor> result = fold_matrix(tensor.view, fold, shape);
  EXPECT_TRUE(result.ok());
  return result ? values(*result) : std::vector<float>();
}

}  // namespace

TEST(Fold, TransposesAndSplitsPairs) {
  const HostTensor stored = counting(2, 4);
  EXPECT_THAT(folded(stored, Fold::Transpose), ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
  EXPECT_THAT(folded(stored, Fold::SplitPairs), ElementsAre(0, 4, 2, 6, 1, 5, 3, 7));
  const HostTensor bias = counting(1, 4);
  EXPECT_THAT(fold_vector(bias.view, Fold::SplitPairs, {}), ElementsAre(0, 2, 1, 3));
}

TEST(Fold, AddsOne) {
  const HostTensor gain = counting(1, 3);
  EXPECT_THAT(fold_vector(gain.view, Fold::AddOne, {}), ElementsAre(1, 2, 3));
}

TEST(Fold, UngroupsRowsOfEachKeyHead) {
  // Two key heads with two queries each, heads of one row: q0 q1 k0 v0 q2 q3 k1 v1.
  const QkvShape shape{.heads = 4, .kv_heads = 2, .head_dim = 1};
  EXPECT_THAT(folded(counting(8, 1), Fold::GroupedQkv, shape), ElementsAre(0, 1, 4, 5, 2, 6, 3, 7));
  EXPECT_THAT(fold_vector(counting(1, 8).view, Fold::GroupedQkv, shape), ElementsAre(0, 1, 4, 5, 2, 6, 3, 7));
}

TEST(Fold, JoinsQuartersOfQueriesValuesAndKeys) {
  const QkvShape shape{.heads = 4, .kv_heads = 4, .head_dim = 1};
  EXPECT_THAT(folded(counting(12, 1), Fold::QuarteredQvk, shape),
              ElementsAre(0, 3, 6, 9, 2, 5, 8, 11, 1, 4, 7, 10));
}

TEST(Fold, RefusesRowsThatDoNotAddUp) {
  const Result<HostTensor> result =
      fold_matrix(counting(7, 1).view, Fold::GroupedQkv, {.heads = 4, .kv_heads = 2, .head_dim = 1});
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, HasSubstr("has 7 rows, must have 8"));
}

TEST(Fold, RefusesToTransposeBlocks) {
  const HostTensor blocks = HostTensor::make(DType::Q8_0, {2, 32});
  EXPECT_FALSE(fold_matrix(blocks.view, Fold::Transpose, {}).ok());
}

TEST(Fold, MakesRowsOfLengthOne) {
  HostTensor stored = HostTensor::make(DType::F32, {1, 2});
  *stored.view.at<float>(0, 0) = 3.0f;
  *stored.view.at<float>(0, 1) = 4.0f;
  EXPECT_THAT(folded(stored, Fold::UnitRows), ElementsAre(0.6f, 0.8f));
}

TEST(Unpack, ReordersMxfp4Blocks) {
  // Two rows of one group: elements 0 to 15 count up in code, 16 to 31 are zero; scale 2^0.
  HostTensor blocks = HostTensor::make(DType::U8, {2, 1, 16}), scales = HostTensor::make(DType::U8, {2, 1});
  for (int i = 0; i < 8; ++i)
    *blocks.view.at<uint8_t>(1, 0, i) = static_cast<uint8_t>(2 * i | (2 * i + 1) << 4);
  *scales.view.at<uint8_t>(0, 0) = *scales.view.at<uint8_t>(1, 0) = 127;
  const Result<HostTensor> packed = pack_mxfp4(blocks.view, scales.view, true);
  ASSERT_TRUE(packed.ok());
  ASSERT_EQ(packed->view.dim(1), 32);
  std::vector<float> second(values(*packed));
  second.erase(second.begin(), second.begin() + 32);
  const std::vector<float> codes{0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6};
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(second[i], i < 16 ? codes[i] : 0.0f) << i;
}

TEST(Unpack, RefusesMxfp4OfOtherShapes) {
  const HostTensor blocks = HostTensor::make(DType::U8, {2, 1, 8}),
                   scales = HostTensor::make(DType::U8, {2, 1});
  const Result<HostTensor> packed = pack_mxfp4(blocks.view, scales.view, false);
  ASSERT_FALSE(packed.ok());
  EXPECT_THAT(packed.error().message, HasSubstr("U8[2, 1, 8]"));
}

TEST(Unpack, MultipliesF8WithItsScales) {
  HostTensor stored = HostTensor::make(DType::F8_E4M3, {130, 129});
  std::memset(stored.buffer.data(), 0x38, stored.buffer.size());  // 1.0
  HostTensor tiles = HostTensor::make(DType::F32, {2, 2});
  for (int i = 0; i < 4; ++i) tiles.view.at<float>()[i] = static_cast<float>(i + 1);
  const Result<HostTensor> result = unpack_f8(stored.view, tiles.view);
  ASSERT_TRUE(result.ok()) << result.error().message;
  const auto at = [&](int64_t r, int64_t c) { return f16_to_f32(*result->view.at<uint16_t>(r, c)); };
  EXPECT_EQ(at(0, 0), 1.0f);
  EXPECT_EQ(at(0, 128), 2.0f);
  EXPECT_EQ(at(128, 127), 3.0f);
  EXPECT_EQ(at(129, 128), 4.0f);
  HostTensor wrong = HostTensor::make(DType::F32, {3, 2});
  EXPECT_FALSE(unpack_f8(stored.view, wrong.view).ok());
}

TEST(Names, ReplacesTheRowsOfASlot) {
  const WeightNames names = hugging_face_names().with({{WeightSlot::Qkv, "fused"}});
  ASSERT_EQ(names.rows(WeightSlot::Qkv).size(), 1u);
  EXPECT_EQ(names.rows(WeightSlot::Qkv)[0].stem, "fused");
  EXPECT_EQ(names.rows(WeightSlot::Output)[0].stem, "lm_head");
  EXPECT_EQ(names.folded({WeightSlot::Qkv}, Fold::Transpose).rows(WeightSlot::Qkv)[0].fold, Fold::Transpose);
}

}  // namespace sluice::models

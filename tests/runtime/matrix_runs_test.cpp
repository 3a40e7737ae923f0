// How lists of matrices that differ are cut for launches: it needs no GPU.
#include "kernels/cuda/gemm/grouped/matrix_runs.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace sluice::kernels::cuda {
namespace {

constexpr int64_t kInner = 64;

Matrix matrix(DType type, int64_t rows) {
  Matrix made = blank<Matrix>();
  made.type = type;
  made.rows = rows;
  made.cols = 128;
  made.row_bytes = row_bytes(type, made.cols);
  return made;
}

class MatrixRuns : public ::testing::Test {
 protected:
  void add(std::vector<Matrix> matrices, bool bias = false) {
    kept_.push_back(std::move(matrices));
    biases_.push_back(bias);
  }
  std::vector<ListedWeight> listed() const {
    std::vector<ListedWeight> list;
    for (size_t i = 0; i < kept_.size(); ++i) list.push_back({kept_[i], biases_[i]});
    return list;
  }
  // Each element of every weight is in exactly one run, of its own kind.
  void expect_covered() const {
    const std::vector<ListedWeight> list = listed();
    const std::vector<MatrixRun> runs = matrix_runs(list);
    std::vector<int64_t> rows(list.size(), 0);
    for (const MatrixRun& run : runs) {
      EXPECT_EQ(run.shape.data, nullptr);
      ASSERT_LE(run.first + run.count, std::ssize(list));
      for (int64_t i = run.first; i < run.first + run.count; ++i) {
        const ListedWeight& weight = list[static_cast<size_t>(i)];
        const Matrix& found = matrix_at(weight, run.row);
        EXPECT_EQ(found.type, run.shape.type);
        EXPECT_EQ(found.rows, run.shape.rows);
        EXPECT_EQ(found.scales == nullptr, run.shape.scales == nullptr);
        EXPECT_EQ(weight.bias, run.bias);
        rows[static_cast<size_t>(i)] += run.shape.rows;
      }
    }
    for (const int64_t covered : rows) EXPECT_EQ(covered, 2 * kInner);
  }

 private:
  std::vector<std::vector<Matrix>> kept_;
  std::vector<bool> biases_;
};

TEST_F(MatrixRuns, AreAsLongAsAListThatIsAlike) {
  for (int i = 0; i < 5; ++i) add({matrix(DType::Q4_0, kInner), matrix(DType::Q8_0, kInner)}, true);
  const std::vector<ListedWeight> list = listed();
  const std::vector<MatrixRun> runs = matrix_runs(list);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].shape.type, DType::Q4_0);
  EXPECT_EQ(runs[0].row, 0);
  EXPECT_EQ(runs[1].shape.type, DType::Q8_0);
  EXPECT_EQ(runs[1].row, kInner);
  for (const MatrixRun& run : runs) {
    EXPECT_EQ(run.first, 0);
    EXPECT_EQ(run.count, 5);
    EXPECT_TRUE(run.bias);
  }
  expect_covered();
}

TEST_F(MatrixRuns, EndWhereTheTypeChanges) {
  for (const DType type : {DType::Q4_0, DType::Q4_0, DType::BF16, DType::Q4_0, DType::Q4_0})
    add({matrix(type, 2 * kInner)});
  const std::vector<ListedWeight> list = listed();
  const std::vector<MatrixRun> runs = matrix_runs(list);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].count, 2);
  EXPECT_EQ(runs[1].first, 2);
  EXPECT_EQ(runs[1].count, 1);
  EXPECT_EQ(runs[2].first, 3);
  EXPECT_EQ(runs[2].count, 2);
  expect_covered();
}

// Gate and up are one matrix where they have one type, two where not: of the second kind some rows begin further on.
TEST_F(MatrixRuns, HoldMatricesOfWeightsThatAreStackedDifferently) {
  add({matrix(DType::Q4_0, 2 * kInner)});
  add({matrix(DType::Q4_0, kInner), matrix(DType::BF16, kInner)});
  add({matrix(DType::Q8_0, 32), matrix(DType::Q4_0, kInner - 32), matrix(DType::BF16, kInner)});
  add({matrix(DType::BF16, kInner), matrix(DType::Q4_0, kInner)}, true);
  expect_covered();
  const std::vector<ListedWeight> list = listed();
  int joined = 0;
  for (const MatrixRun& run : matrix_runs(list))
    if (run.count > 1) {
      ++joined;
      EXPECT_EQ(run.shape.type, DType::BF16);
      EXPECT_EQ(run.row, kInner);
      EXPECT_EQ(run.first, 1);
    }
  EXPECT_EQ(joined, 1);
}

TEST_F(MatrixRuns, EndWhereScalesOrABiasBegin) {
  const float scale = 1.0f;
  Matrix scaled = matrix(DType::F8_E4M3, 2 * kInner), plain = scaled;
  scaled.scales = &scale;
  add({scaled});
  add({scaled}, true);
  add({plain}, true);
  const std::vector<ListedWeight> list = listed();
  EXPECT_EQ(matrix_runs(list).size(), 3u);
  expect_covered();
}

}  // namespace
}  // namespace sluice::kernels::cuda

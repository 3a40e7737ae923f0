// Prepared plain weights on levels that have panels in columns: sums of chunks of fused multiply-adds, the same bits on all.
#include <cmath>

#include "kernels/cpu/panels/kernels.h"
#include "tests/parity/harness.h"

namespace sluice::parity {
namespace {

using kernels::Backend;
using kernels::Weight;

std::vector<std::unique_ptr<Backend>> backends_with_columns(int threads, DType type) {
  std::vector<std::unique_ptr<Backend>> backends = cpu_backends(threads);
  std::erase_if(backends, [&](const auto& backend) { return !takes_columns(*backend, type); });
  return backends;
}

constexpr DType kTypes[] = {DType::F32, DType::F16, DType::BF16};

// The definition: sums of 256 columns each, in order.
float defined_sum(const std::vector<float>& weights, const float* x, float bias) {
  float total = 0;
  for (size_t begin = 0; begin < weights.size(); begin += 256) {
    float sum = 0;
    for (size_t k = begin; k < std::min(weights.size(), begin + 256); ++k)
      sum = std::fma(weights[k], x[k], sum);
    total = begin == 0 ? sum : total + sum;
  }
  return total + bias;
}

HostTensor defined(const TensorView& x, const Weight& weight) {
  HostTensor out = HostTensor::make(DType::F32, {x.dim(0), weight.rows});
  for (int64_t row = 0; row < weight.rows; ++row) {
    const std::vector<float> values = row_of(weight, row);
    const float bias = weight.bias.empty() ? 0.0f : weight.bias.at<float>()[row];
    for (int64_t i = 0; i < x.dim(0); ++i)
      out.view.at<float>(i)[row] = defined_sum(values, x.at<float>(i), bias);
  }
  return out;
}

// The last tokens of x, alone and in strided views.
void expect_rows(Backend& backend, const Weight& prepared, const TensorView& x, const TensorView& expected,
                 int64_t n) {
  const int64_t first = x.dim(0) - n, rows = prepared.rows;
  HostTensor out = HostTensor::make(DType::F32, {n, rows + 2});
  backend.matmul(out.view.columns(1, 1 + rows), x.rows(first, x.dim(0)), prepared);
  ASSERT_TRUE(same_bits(out.view.columns(1, 1 + rows), expected.rows(first, x.dim(0))));
  for (int64_t i = 0; i < n; ++i) {  // and nothing beside them
    ASSERT_EQ(out.view.at<float>(i)[0], 0.0f);
    ASSERT_EQ(out.view.at<float>(i)[rows + 1], 0.0f);
  }
}

// Every number of tokens that a tile has, one more, several tiles; rows that end in each panel of a tile and of a block.
TEST(Columns, HaveTheBitsOfTheirDefinitionOnEveryLevel) {
  constexpr int64_t kTokens = 30;
  for (DType type : kTypes) {
    const auto backends = backends_with_columns(2, type);
    for (const int64_t rows : {16, 31, 45, 62, 145}) {
      for (const int64_t cols : {1, 256, 621}) {
        Random random(41);
        const OwnedWeight owned = random_weight(random, {type}, rows, cols, rows % 2 == 1);
        const HostTensor x = random.tensor({kTokens, cols + 5});
        const HostTensor expected = defined(x.view.columns(0, cols), owned.weight);
        for (const auto& backend : backends) {
          const Weight prepared = backend->prepare(owned.weight);
          ASSERT_TRUE(prepared.packed_whole);
          for (const int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 30}) {
            SCOPED_TRACE(::testing::Message()
                         << backend->name() << " " << name(type) << " " << rows << "x" << cols << " n " << n);
            expect_rows(*backend, prepared, x.view.columns(0, cols), expected.view, n);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// More tokens than one call takes.
TEST(Columns, BitsDependOnTheTokenAlone) {
  constexpr int64_t kTokens = 520, kRows = 75, kCols = 300;
  for (DType type : kTypes) {
    for (const auto& backend : backends_with_columns(2, type)) {
      SCOPED_TRACE(::testing::Message() << backend->name() << " " << name(type));
      Random random(42);
      const OwnedWeight owned = random_weight(random, {type}, kRows, kCols, true);
      const Weight prepared = backend->prepare(owned.weight);
      const HostTensor x = random.tensor({kTokens, kCols});
      HostTensor all = HostTensor::make(DType::F32, {kTokens, kRows});
      backend->matmul(all.view, x.view, prepared);
      for (const int64_t n : {1, 7, 19}) {
        for (const int64_t first : {int64_t{0}, int64_t{505}, kTokens - n}) {
          const int64_t last = std::min(kTokens, first + n);
          HostTensor out = HostTensor::make(DType::F32, {last - first, kRows});
          backend->matmul(out.view, x.view.rows(first, last), prepared);
          ASSERT_TRUE(same_bits(out.view, all.view.rows(first, last))) << n << " from " << first;
        }
      }
    }
  }
}

TEST(Columns, WhatIsNotFiniteStaysSo) {
  constexpr int64_t kTokens = 15, kBad = 4, kCols = 300;
  for (DType type : kTypes) {
    for (const auto& backend : backends_with_columns(1, type)) {
      Random random(43);
      const OwnedWeight owned = random_weight(random, {type}, 15, kCols, false);
      const Weight prepared = backend->prepare(owned.weight);
      for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
        SCOPED_TRACE(::testing::Message() << backend->name() << " " << name(type) << " " << bad);
        HostTensor x = random.tensor({kTokens, kCols});
        x.view.at<float>(kBad)[kCols - 1] = bad;
        HostTensor out = HostTensor::make(DType::F32, {kTokens, 15});
        backend->matmul(out.view, x.view, prepared);
        for (int64_t token = 0; token < kTokens; ++token)
          for (int64_t row = 0; row < 15; ++row)
            ASSERT_EQ(std::isfinite(out.view.at<float>(token)[row]), token != kBad) << token << " " << row;
      }
    }
  }
}

TEST(Columns, HeadsAgreeWithOneGemmEach) {
  for (DType type : kTypes) {
    for (const auto& backend : backends_with_columns(2, type)) {
      Random random(44);
      std::vector<OwnedWeight> owned;
      std::vector<Weight> weights;
      for (int head = 0; head < 3; ++head) {
        owned.push_back(random_weight(random, {type}, 15, 64, false));
        weights.push_back(backend->prepare(owned.back().weight));
      }
      for (const int64_t n : {1, 5, 18}) {
        const HostTensor x = random.tensor({n, 3, 64});
        HostTensor out = HostTensor::make(DType::F32, {n, 3, 15});
        backend->matmul_heads(out.view, x.view, weights);
        for (int64_t token = 0; token < n; ++token) {
          for (int64_t head = 0; head < 3; ++head) {
            HostTensor expected = HostTensor::make(DType::F32, {1, 15});
            const auto row = TensorView::contiguous(x.view.at<float>(token, head), DType::F32, {1, 64});
            backend->matmul(expected.view, row, weights[static_cast<size_t>(head)]);
            const auto got = TensorView::contiguous(out.view.at<float>(token, head), DType::F32, {1, 15});
            ASSERT_TRUE(same_bits(got, expected.view)) << backend->name() << " " << name(type) << " n " << n;
          }
        }
      }
    }
  }
}

// Beside parts in other forms, whose activations are taken in other groups of tokens.
TEST(Columns, PartsOfDifferentTypesAreOneGemm) {
  for (const auto& backend : backends_with_columns(2, DType::F16)) {
    Random random(45);
    const OwnedWeight owned =
        random_weight(random, {DType::Q4_K, DType::F16, DType::F32, DType::F8_E4M3}, 32, 512, true);
    const Weight prepared = backend->prepare(owned.weight);
    const HostTensor x = random.tensor({140, 512});
    HostTensor out = HostTensor::make(DType::F32, {140, owned.weight.rows});
    backend->matmul(out.view, x.view, prepared);
    for (size_t part = 0; part < owned.weight.parts.size(); ++part) {
      const auto first = static_cast<int64_t>(part) * 32;
      const Weight one = backend->prepare({.parts = {owned.weight.parts[part]},
                                           .rows = 32,
                                           .cols = 512,
                                           .bias = owned.weight.bias.rows(first, first + 32)});
      HostTensor expected = HostTensor::make(DType::F32, {140, 32});
      backend->matmul(expected.view, x.view, one);
      EXPECT_TRUE(same_bits(out.view.columns(first, first + 32), expected.view))
          << backend->name() << " part " << part;
    }
  }
}

// Panels would take more than 1.15 times the bytes of such rows.
TEST(Columns, RowsThatFillNoPanelAreReadAsStored) {
  for (const auto& backend : backends_with_columns(1, DType::F32)) {
    Random random(46);
    for (const int64_t rows : {1, 13, 17, 41})
      EXPECT_EQ(backend->prepare(random_weight(random, {DType::F32}, rows, 64, false).weight).packed, nullptr)
          << rows;
    for (const int64_t rows : {14, 16, 42})
      EXPECT_NE(backend->prepare(random_weight(random, {DType::F32}, rows, 64, false).weight).packed, nullptr)
          << rows;
  }
}

}  // namespace
}  // namespace sluice::parity

// Prepared weights on levels with matrix tiles: BF16 with activations as two numbers of bf16 and sums in f32, blocks with
// integers.
#include <cmath>

#include "kernels/cpu/panels/format.h"
#include "tests/parity/harness.h"

namespace sluice::parity {
namespace {

using kernels::Weight;

// Types with panels in words.
std::vector<DType> tile_types() {
  std::vector<DType> types = weight_types();
  std::erase_if(types, [](DType type) { return !kernels::cpu::has_words(type); });
  return types;
}

constexpr int64_t kSomeColumns = 621;

// What is left is f32 rounding of the sums and the rest of the activations.
void expect_sums(const TensorView& out, const TensorView& x, const Weight& weight) {
  for (int64_t row = 0; row < weight.rows; ++row) {
    const std::vector<float> values = row_of(weight, row);
    for (int64_t i = 0; i < x.dim(0); ++i) {
      double sum = weight.bias.empty() ? 0.0 : weight.bias.at<float>()[row];
      double size = 1;
      for (int64_t k = 0; k < weight.cols; ++k) {
        const double term = double(values[static_cast<size_t>(k)]) * x.at<float>(i)[k];
        sum += term;
        size += std::fabs(term);
      }
      ASSERT_NEAR(out.at<float>(i)[row], sum, 2e-5 * size) << "token " << i << " row " << row;
    }
  }
}

TEST(Tiles, EveryTypeAgreesWithItsDefinition) {
  for (const auto& backend : tile_backends(2)) {
    for (DType type : tile_types()) {
      for (const int64_t rows : {1, 33, 75}) {
        Random random(31);
        const OwnedWeight owned = random_weight(random, {type}, rows, kSomeColumns, rows % 2 == 1);
        const Weight prepared = backend->prepare(owned.weight);
        ASSERT_NE(prepared.packed, nullptr);
        for (const int64_t n : {1, 3, 9, 16, 33}) {
          SCOPED_TRACE(::testing::Message()
                       << backend->name() << " " << name(type) << " rows " << rows << " n " << n);
          const HostTensor x = random.tensor({n, owned.weight.cols});
          HostTensor out = HostTensor::make(DType::F32, {n, rows + 2});
          backend->matmul(out.view.columns(1, 1 + rows), x.view, prepared);
          expect_sums(out.view.columns(1, 1 + rows), x.view, owned.weight);
          if (HasFatalFailure()) return;
          for (int64_t i = 0; i < n; ++i) {  // and nothing beside them
            ASSERT_EQ(out.view.at<float>(i)[0], 0.0f);
            ASSERT_EQ(out.view.at<float>(i)[rows + 1], 0.0f);
          }
        }
      }
    }
  }
}

// Alone, in a part of a tile, in many tiles, in several calls' worth of tiles; on one thread or two.
TEST(Tiles, BitsDependOnTheTokenAlone) {
  const auto one = tile_backends(1);
  const auto two = tile_backends(2);
  for (size_t b = 0; b < one.size(); ++b) {
    for (DType type : tile_types()) {
      SCOPED_TRACE(::testing::Message() << one[b]->name() << " " << name(type));
      Random random(33);
      const OwnedWeight owned = random_weight(random, {type}, 145, kSomeColumns, true);
      const Weight weight = one[b]->prepare(owned.weight);
      const Weight other = two[b]->prepare(owned.weight);
      const HostTensor x = random.tensor({520, owned.weight.cols});
      HostTensor all = HostTensor::make(DType::F32, {520, 145});
      two[b]->matmul(all.view, x.view, other);
      for (const int64_t n : {1, 2, 8, 9, 15, 16, 17, 32, 49, 95, 300}) {
        HostTensor out = HostTensor::make(DType::F32, {n, 145});
        one[b]->matmul(out.view, x.view.rows(520 - n, 520), weight);
        ASSERT_TRUE(same_bits(out.view, all.view.rows(520 - n, 520))) << n;
      }
    }
  }
}

TEST(Tiles, WhatIsNotFiniteStaysSo) {
  for (const auto& backend : tile_backends(1)) {
    for (DType type : tile_types()) {
      Random random(34);
      const OwnedWeight owned = random_weight(random, {type}, 13, kSomeColumns, false);
      const Weight prepared = backend->prepare(owned.weight);
      for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
        HostTensor x = random.tensor({3, owned.weight.cols});
        x.view.at<float>(1)[owned.weight.cols - 1] = bad;
        HostTensor out = HostTensor::make(DType::F32, {3, 13});
        backend->matmul(out.view, x.view, prepared);
        for (int64_t row = 0; row < 13; ++row) {
          SCOPED_TRACE(::testing::Message() << backend->name() << " " << name(type) << " row " << row);
          ASSERT_TRUE(std::isfinite(out.view.at<float>(0)[row]));
          ASSERT_FALSE(std::isfinite(out.view.at<float>(1)[row]));
          ASSERT_TRUE(std::isfinite(out.view.at<float>(2)[row]));
        }
      }
    }
  }
}

TEST(Tiles, HeadsAgreeWithOneGemmEach) {
  for (const auto& backend : tile_backends(2)) {
    for (DType type : {DType::BF16, DType::Q8_0}) {
      Random random(35);
      std::vector<OwnedWeight> owned;
      std::vector<Weight> weights;
      for (int head = 0; head < 3; ++head) {
        owned.push_back(random_weight(random, {type}, 10, 64, false));
        weights.push_back(backend->prepare(owned.back().weight));
      }
      const HostTensor x = random.tensor({18, 3, 64});
      HostTensor out = HostTensor::make(DType::F32, {18, 3, 10});
      backend->matmul_heads(out.view, x.view, weights);
      for (int64_t token = 0; token < 18; ++token) {
        for (int64_t head = 0; head < 3; ++head) {
          HostTensor expected = HostTensor::make(DType::F32, {1, 10});
          const auto row = TensorView::contiguous(x.view.at<float>(token, head), DType::F32, {1, 64});
          backend->matmul(expected.view, row, weights[static_cast<size_t>(head)]);
          const auto got = TensorView::contiguous(out.view.at<float>(token, head), DType::F32, {1, 10});
          EXPECT_TRUE(same_bits(got, expected.view)) << backend->name() << " " << name(type);
        }
      }
    }
  }
}

// Several chunks of columns, more panels than have their sums in the cache, more tokens than one call takes.
TEST(Tiles, IntegersOfManyRowsAndTokensHaveTheBitsOfStoredOnes) {
  for (const auto& backend : tile_backends(1)) {
    for (DType type : {DType::Q4_0, DType::Q4_K, DType::Q6_K}) {
      Random random(37);
      const OwnedWeight owned = random_weight(random, {type}, 277, 5 * 256, true);
      const HostTensor x = random.tensor({530, owned.weight.cols});
      HostTensor stored = HostTensor::make(DType::F32, {530, 277});
      HostTensor out = HostTensor::make(DType::F32, {530, 277});
      backend->matmul(stored.view, x.view, owned.weight);
      backend->matmul(out.view, x.view, backend->prepare(owned.weight));
      ASSERT_TRUE(same_bits(out.view, stored.view)) << backend->name() << " " << name(type);
    }
  }
}

// The model of the tile instructions gives the bits that the instructions give.
TEST(Tiles, AllImplementationsGiveTheSameBits) {
  const auto backends = tile_backends(1);
  for (DType type : tile_types()) {
    Random random(36);
    const OwnedWeight owned = random_weight(random, {type}, 33, kSomeColumns, false);
    const HostTensor x = random.tensor({19, owned.weight.cols});
    HostTensor first = HostTensor::make(DType::F32, {19, 33});
    for (const auto& backend : backends) {
      HostTensor out = HostTensor::make(DType::F32, {19, 33});
      backend->matmul(out.view, x.view, backend->prepare(owned.weight));
      if (backend == backends.front()) {
        first = std::move(out);
      } else {
        ASSERT_TRUE(same_bits(out.view, first.view)) << backend->name() << " " << name(type);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::parity

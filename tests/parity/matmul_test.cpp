// GEMMs of every level against the reference, over every weight type and odd sizes.
//
// Block types: a level multiplies weights by activations rounded to int8 per 32 (scale = largest / 127). Two
// bounds:
//   against the reference GEMM of the rounded activations, only f32 rounding is left:  1e-5 * sum |w x|;
//   against the reference GEMM of the true ones, each activation is off by at most half a step:
//   sum over blocks of (largest / 254) * sum |w|, plus the former.
// Tables of floats are rounded to bytes besides: the first bound holds for the rounded table, whose distance from the true one
// is known.
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/ref/ref.h"
#include "tensor/float_tables.h"
#include "tensor/half.h"
#include "tests/parity/harness.h"

namespace sluice::parity {
namespace {

using kernels::Backend;
using kernels::Weight;

// Rounds each 32 activations as the levels do and returns the largest error allowed for each.
HostTensor round_activations(const TensorView& x, HostTensor& half_steps) {
  HostTensor rounded = HostTensor::make(DType::F32, {x.dim(0), x.dim(1)});
  half_steps = HostTensor::make(DType::F32, {x.dim(0), x.dim(1)});
  for (int64_t i = 0; i < x.dim(0); ++i) {
    for (int64_t begin = 0; begin < x.dim(1); begin += 32) {
      const float* from = x.at<float>(i) + begin;
      float largest = 0;
      for (int k = 0; k < 32; ++k) largest = std::max(largest, std::fabs(from[k]));
      for (int k = 0; k < 32; ++k) {
        rounded.view.at<float>(i)[begin + k] =
            std::nearbyint(from[k] * (127.0f / largest)) * (largest / 127.0f);
        half_steps.view.at<float>(i)[begin + k] = largest / 254.0f * 1.00001f;
      }
    }
  }
  return rounded;
}

// limits[i][row] = sum over k of |w| * (1e-5 |x| + step)
HostTensor limits_of(const Weight& weight, const TensorView& x, const TensorView* steps) {
  HostTensor limits = HostTensor::make(DType::F32, {x.dim(0), weight.rows});
  for (int64_t row = 0; row < weight.rows; ++row) {
    const std::vector<float> values = row_of(weight, row);
    for (int64_t i = 0; i < x.dim(0); ++i) {
      float sum = 1e-6f;
      for (int64_t k = 0; k < weight.cols; ++k) {
        const float step = steps == nullptr ? 0.0f : steps->at<float>(i)[k];
        sum += std::fabs(values[static_cast<size_t>(k)]) * (1e-5f * std::fabs(x.at<float>(i)[k]) + step);
      }
      limits.view.at<float>(i)[row] = sum;
    }
  }
  return limits;
}

void expect_within(const TensorView& out, const TensorView& expected, const TensorView& limits) {
  for (int64_t i = 0; i < out.dim(0); ++i) {
    for (int64_t row = 0; row < out.dim(1); ++row) {
      const float difference = std::fabs(out.at<float>(i)[row] - expected.at<float>(i)[row]);
      ASSERT_LE(difference, limits.at<float>(i)[row])
          << "token " << i << " row " << row << " expected " << expected.at<float>(i)[row];
    }
  }
}

struct Size {
  int64_t rows;
  int64_t blocks;  // cols in blocks, or in elements of a plain type
};

std::vector<Size> sizes_of(DType type) {
  if (!is_block(type)) return {{1, 1}, {5, 7}, {13, 33}, {9, 100}, {37, 64}};
  if (small_run()) return {{1, 1}, {13, 3}};
  return {{1, 1}, {5, 3}, {13, 1}, {37, 5}};
}

// Whose values are what levels multiply with: of types with a table of floats, F32.
OwnedWeight as_multiplied(const Weight& weight) {
  OwnedWeight made{{}, weight};
  const TensorView& part = weight.parts[0];
  if (!has_float_table(part.dtype)) return made;
  HostTensor rounded = HostTensor::make(DType::F32, {part.dim(0), part.dim(1)});
  const std::array<float, 16> table = float_table(part.dtype);
  const std::array<int8_t, 16> bytes = byte_table(part.dtype);
  const auto* block = static_cast<const uint8_t*>(part.data);
  for (int64_t i = 0; i < part.elements(); ++i) {
    const uint8_t* at = block + i / 32 * 18;
    const int code = i % 32 < 16 ? at[2 + i % 16] & 0xf : at[2 + i % 16] >> 4;
    const auto place = static_cast<size_t>(code);
    EXPECT_NEAR(static_cast<float>(bytes[place]) * byte_factor(part.dtype), table[place], 0.004f);
    uint16_t d;
    std::memcpy(&d, at, 2);
    rounded.view.at<float>()[i] = f16_to_f32(d) * byte_factor(part.dtype) * static_cast<float>(bytes[place]);
  }
  made.weight.parts = {rounded.view};
  made.memory.push_back(std::move(rounded));
  return made;
}

void check_case(Backend& backend, const Weight& stored, int64_t n, Random& random) {
  const bool blocks = is_block(stored.parts[0].dtype);
  const OwnedWeight multiplied = as_multiplied(stored);
  const Weight& weight = multiplied.weight;
  const std::unique_ptr<Backend> reference = kernels::make_ref_backend();
  const HostTensor x = random.tensor({n, weight.cols});
  HostTensor out = HostTensor::make(DType::F32, {n, weight.rows});
  HostTensor expected = HostTensor::make(DType::F32, {n, weight.rows});
  backend.matmul(out.view, x.view, stored);
  reference->matmul(expected.view, x.view, weight);
  if (blocks) {
    HostTensor steps;
    const HostTensor rounded = round_activations(x.view, steps);
    expect_within(out.view, expected.view, limits_of(weight, x.view, &steps.view).view);
    reference->matmul(expected.view, rounded.view, weight);
    expect_within(out.view, expected.view, limits_of(weight, rounded.view, nullptr).view);
  } else {
    expect_within(out.view, expected.view, limits_of(weight, x.view, nullptr).view);
  }
}

TEST(Matmul, EveryTypeAndSizeAgreesWithReference) {
  for (const auto& backend : cpu_backends(2)) {
    for (DType type : weight_types()) {
      for (const Size& size : sizes_of(type)) {
        Random random(7);
        const OwnedWeight owned = random_weight(random, {type}, size.rows,
                                                size.blocks * info(type).block_elements, size.rows % 2 == 1);
        for (int64_t n : token_counts()) {
          SCOPED_TRACE(::testing::Message() << backend->name() << " " << name(type) << " " << size.rows << "x"
                                            << owned.weight.cols << " n " << n);
          check_case(*backend, owned.weight, n, random);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// A value that is not finite makes the token's whole row so, on every level, and no other token's.
TEST(Matmul, WhatIsNotFiniteStaysSo) {
  for (const auto& backend : cpu_backends(1)) {
    for (DType type : weight_types()) {
      Random random(17);
      const int64_t cols = is_block(type) ? 2 * info(type).block_elements : 64;
      const OwnedWeight owned = random_weight(random, {type}, 13, cols, false);
      for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
        for (const int64_t place : {int64_t{0}, int64_t{5}, cols - 1}) {
          SCOPED_TRACE(::testing::Message()
                       << backend->name() << " " << name(type) << " " << bad << " at " << place);
          HostTensor x = random.tensor({3, cols});
          x.view.at<float>(1)[place] = bad;
          HostTensor out = HostTensor::make(DType::F32, {3, 13});
          backend->matmul(out.view, x.view, owned.weight);
          for (int64_t row = 0; row < 13; ++row) {
            ASSERT_TRUE(std::isfinite(out.view.at<float>(0)[row]));
            ASSERT_FALSE(std::isfinite(out.view.at<float>(1)[row])) << row;
            ASSERT_TRUE(std::isfinite(out.view.at<float>(2)[row]));
          }
        }
      }
    }
  }
}

// The same weight and tokens: alone or in a batch, on one thread or two, whole or in strided views.
TEST(Matmul, BitsDependOnTheTokenAlone) {
  const auto one = cpu_backends(1);
  const auto two = cpu_backends(2);
  for (size_t b = 0; b < one.size(); ++b) {
    for (DType type : weight_types()) {
      SCOPED_TRACE(::testing::Message() << one[b]->name() << " " << name(type));
      Random random(8);
      const int64_t cols = is_block(type) ? 3 * info(type).block_elements : 101;
      const OwnedWeight owned = random_weight(random, {type}, small_run() ? 21 : 301, cols, true);
      const int64_t rows = owned.weight.rows;
      for (int64_t n : token_counts()) {
        const HostTensor x = random.tensor({n, cols + 5});
        HostTensor single = HostTensor::make(DType::F32, {n, rows});
        HostTensor threaded = HostTensor::make(DType::F32, {n, rows + 3});
        one[b]->matmul(single.view, x.view.columns(0, cols), owned.weight);
        two[b]->matmul(threaded.view.columns(1, 1 + rows), x.view.columns(0, cols), owned.weight);
        ASSERT_TRUE(same_bits(single.view, threaded.view.columns(1, 1 + rows)));
        HostTensor alone = HostTensor::make(DType::F32, {1, rows});
        for (int64_t i = 0; i < n; ++i) {
          one[b]->matmul(alone.view, x.view.rows(i, i + 1).columns(0, cols), owned.weight);
          ASSERT_TRUE(same_bits(alone.view, single.view.rows(i, i + 1))) << "token " << i << " of " << n;
        }
      }
    }
  }
}

// Plain weights are widened a chunk of columns at a time for many tokens: rows of several chunks, the last one short, and more
// tokens than stay in a cache at once.
TEST(Matmul, PlainRowsOfSeveralChunksHaveTheBitsOfOneToken) {
  constexpr int64_t kCols = 2 * 512 + 101, kRows = 70, kTokens = 75;
  for (const auto& backend : cpu_backends(2)) {
    for (DType type : weight_types()) {
      if (is_block(type)) continue;
      SCOPED_TRACE(::testing::Message() << backend->name() << " " << name(type));
      Random random(9);
      const OwnedWeight owned = random_weight(random, {type}, kRows, kCols, true);
      const HostTensor x = random.tensor({kTokens, kCols});
      HostTensor all = HostTensor::make(DType::F32, {kTokens, kRows});
      HostTensor alone = HostTensor::make(DType::F32, {1, kRows});
      backend->matmul(all.view, x.view, owned.weight);
      for (int64_t i = 0; i < kTokens; ++i) {
        backend->matmul(alone.view, x.view.rows(i, i + 1), owned.weight);
        ASSERT_TRUE(same_bits(alone.view, all.view.rows(i, i + 1))) << "token " << i;
      }
    }
  }
}

// Integer sums are exact and scales are applied in one order, so block types agree to the bit across levels.
TEST(Matmul, BlockTypesGiveTheSameBitsOnEveryLevel) {
  const auto backends = cpu_backends(1);
  for (DType type : weight_types()) {
    if (!is_block(type)) continue;
    Random random(9);
    const OwnedWeight owned = random_weight(random, {type}, 14, 3 * info(type).block_elements, false);
    const HostTensor x = random.tensor({7, owned.weight.cols});
    HostTensor first = HostTensor::make(DType::F32, {7, 14});
    backends.front()->matmul(first.view, x.view, owned.weight);
    for (const auto& backend : backends) {
      HostTensor out = HostTensor::make(DType::F32, {7, 14});
      backend->matmul(out.view, x.view, owned.weight);
      ASSERT_TRUE(same_bits(out.view, first.view)) << backend->name() << " " << name(type);
    }
  }
}

// Panels hold the weights in another order and change no bit: every type, rows that fill no panel, any number of tokens.
TEST(Matmul, PreparedWeightsGiveTheBitsOfStoredOnes) {
  for (const auto& backend : cpu_backends(2)) {
    for (DType type : weight_types()) {
      if (takes_tiles(*backend, type) || takes_columns(*backend, type)) continue;
      for (const int64_t rows : {1, 15, 16, 33, 75}) {
        Random random(18);
        // More columns than are unpacked at once.
        const int64_t cols = !is_block(type) ? 101 : info(type).block_elements == 32 ? 19 * 32 : 3 * 256;
        const OwnedWeight owned = random_weight(random, {type}, rows, cols, rows % 2 == 1);
        const Weight prepared = backend->prepare(owned.weight);
        ASSERT_EQ(prepared.packed != nullptr, is_block(type)) << name(type);
        for (int64_t n : token_counts()) {
          SCOPED_TRACE(::testing::Message()
                       << backend->name() << " " << name(type) << " rows " << rows << " n " << n);
          const HostTensor x = random.tensor({n, cols});
          HostTensor stored = HostTensor::make(DType::F32, {n, rows});
          HostTensor out = HostTensor::make(DType::F32, {n, rows + 2});
          backend->matmul(stored.view, x.view, owned.weight);
          backend->matmul(out.view.columns(1, 1 + rows), x.view, prepared);
          ASSERT_TRUE(same_bits(out.view.columns(1, 1 + rows), stored.view));
          for (int64_t i = 0; i < n; ++i) {  // and nothing beside them
            ASSERT_EQ(out.view.at<float>(i)[0], 0.0f);
            ASSERT_EQ(out.view.at<float>(i)[rows + 1], 0.0f);
          }
        }
      }
    }
  }
}

// A table that is looked up and multiplied with: panels beside the rows as they are stored.
TEST(Matmul, ATiedTableGivesTheBitsOfItsRows) {
  for (const auto& backend : cpu_backends(2)) {
    Random random(22);
    OwnedWeight owned = random_weight(random, {DType::Q4_1}, 75, 128, false);
    owned.weight.table = true;
    const Weight table = backend->prepare(owned.weight);
    EXPECT_EQ(table.packed, nullptr);
    const Weight tied = backend->prepare_tied(table);
    EXPECT_NE(tied.packed, nullptr);
    const HostTensor x = random.tensor({3, 128});
    HostTensor stored = HostTensor::make(DType::F32, {3, 75});
    HostTensor out = HostTensor::make(DType::F32, {3, 75});
    backend->matmul(stored.view, x.view, table);
    backend->matmul(out.view, x.view, tied);
    EXPECT_TRUE(same_bits(out.view, stored.view)) << backend->name();
  }
}

// As many tokens as matrix tiles are used for, with a part of a tile left over.
// Several chunks of columns and blocks of panels, with tokens that round to zeros.
TEST(Matmul, PreparedWeightsGiveTheBitsOfStoredOnesForManyTokens) {
  const int64_t tokens = small_run() ? 49 : 77;
  constexpr int64_t kRows = 145;
  for (const auto& backend : cpu_backends(2)) {
    for (DType type : weight_types()) {
      if (!is_block(type) || takes_tiles(*backend, type)) continue;
      Random random(21);
      const OwnedWeight owned = random_weight(random, {type}, kRows, 5 * 256, true);
      const HostTensor x = random.tensor({tokens, owned.weight.cols});
      for (int64_t i = 0; i < owned.weight.cols; ++i) {
        x.view.at<float>(3)[i] = 0.0f;
        x.view.at<float>(20)[i] = 1e-40f;
      }
      HostTensor stored = HostTensor::make(DType::F32, {tokens, kRows});
      HostTensor out = HostTensor::make(DType::F32, {tokens, kRows});
      backend->matmul(stored.view, x.view, owned.weight);
      backend->matmul(out.view, x.view, backend->prepare(owned.weight));
      ASSERT_TRUE(same_bits(out.view, stored.view)) << backend->name() << " " << name(type);
    }
  }
}

// Few columns let one call have more tokens than wait for a panel at a time.
TEST(Matmul, PreparedWeightsGiveTheBitsOfStoredOnesInSeveralPasses) {
  constexpr int64_t kTokens = 517, kRows = 33;
  for (const auto& backend : cpu_backends(1)) {
    for (const DType type : {DType::Q4_1, DType::Q8_0, DType::Q6_K}) {
      Random random(23);
      const int64_t cols = info(type).block_elements == 32 ? 64 : 256;
      const OwnedWeight owned = random_weight(random, {type}, kRows, cols, true);
      const HostTensor x = random.tensor({kTokens, cols});
      HostTensor stored = HostTensor::make(DType::F32, {kTokens, kRows});
      HostTensor out = HostTensor::make(DType::F32, {kTokens, kRows});
      backend->matmul(stored.view, x.view, owned.weight);
      backend->matmul(out.view, x.view, backend->prepare(owned.weight));
      ASSERT_TRUE(same_bits(out.view, stored.view)) << backend->name() << " " << name(type);
    }
  }
}

TEST(Matmul, WhatIsNotFiniteStaysSoAmongManyTokens) {
  constexpr int64_t kTokens = 33, kBad = 20;
  for (const auto& backend : cpu_backends(1)) {
    for (DType type : {DType::Q4_1, DType::Q8_0, DType::Q6_K}) {
      Random random(22);
      const OwnedWeight owned = random_weight(random, {type}, 13, 256, false);
      const Weight prepared = backend->prepare(owned.weight);
      for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
        SCOPED_TRACE(::testing::Message() << backend->name() << " " << name(type) << " " << bad);
        HostTensor x = random.tensor({kTokens, 256});
        x.view.at<float>(kBad)[77] = bad;
        HostTensor out = HostTensor::make(DType::F32, {kTokens, 13});
        backend->matmul(out.view, x.view, prepared);
        for (int64_t token = 0; token < kTokens; ++token)
          for (int64_t row = 0; row < 13; ++row)
            ASSERT_EQ(std::isfinite(out.view.at<float>(token)[row]), token != kBad) << token << " " << row;
      }
    }
  }
}

// Parts in the order of x and in two others, for one token and for many: every row is that of the part whose columns were put
// back in order, at the reference; on each level the bits are those of x in the part's order.
TEST(Matmul, ColumnsInAnotherOrderMeetTheirActivations) {
  constexpr int64_t kRows = 19, kCols = 256;
  std::vector<kernels::ColumnOrder> orders{nullptr};
  for (int step : {5, 77, 77}) {  // the last is another copy of the one before
    std::vector<int32_t> order(kCols);
    for (int k = 0; k < kCols; ++k) order[static_cast<size_t>(k)] = (step * k + 3) % kCols;
    orders.push_back(std::make_shared<const std::vector<int32_t>>(order));
  }
  std::vector<std::unique_ptr<Backend>> backends = cpu_backends(2);
  backends.push_back(kernels::make_ref_backend());
  for (const auto& backend : backends) {
    for (const std::vector<size_t>& chosen : {std::vector<size_t>{1}, {2, 3}, {0, 1, 2, 3}, {1, 0}}) {
      Random random(23);
      const OwnedWeight owned =
          random_weight(random, std::vector<DType>(chosen.size(), DType::Q4_0), kRows, kCols, true);
      Weight weight = owned.weight;
      for (const size_t one : chosen) weight.orders.push_back(orders[one]);
      const Weight prepared = backend->prepare(weight);
      EXPECT_EQ(prepared.runs.size(), chosen.size() == 4                     ? 3u
                                      : chosen[0] == 1 && chosen.size() == 2 ? 2u
                                                                             : 0u);
      for (const int64_t n : {1, 3, 33}) {
        SCOPED_TRACE(::testing::Message() << backend->name() << " " << chosen.size() << " parts, n " << n);
        const HostTensor x = random.tensor({n, kCols + 3});
        const TensorView columns = x.view.columns(3, kCols + 3);
        HostTensor out = HostTensor::make(DType::F32, {n, weight.rows});
        backend->matmul(out.view, columns, prepared);
        for (size_t i = 0; i < chosen.size(); ++i) {
          const int64_t row = static_cast<int64_t>(i) * kRows;
          Weight part{.parts = {weight.parts[i]}, .rows = kRows, .cols = kCols};
          part.bias = weight.bias.rows(row, row + kRows);
          HostTensor ordered = HostTensor::make(DType::F32, {n, kCols});
          for (int64_t t = 0; t < n; ++t)
            for (int64_t k = 0; k < kCols; ++k)
              ordered.view.at<float>(t)[k] =
                  columns.at<float>(t)[chosen[i] == 0 ? k : (*orders[chosen[i]])[static_cast<size_t>(k)]];
          HostTensor expected = HostTensor::make(DType::F32, {n, kRows});
          backend->matmul(expected.view, ordered.view, backend->prepare(part));
          ASSERT_TRUE(same_bits(out.view.columns(row, row + kRows), expected.view)) << "part " << i;
        }
      }
    }
  }
}

TEST(Matmul, PreparedPartsOfDifferentTypesAreOneGemm) {
  for (const auto& backend : cpu_backends(2)) {
    Random random(19);
    const OwnedWeight owned =
        random_weight(random, {DType::Q4_K, DType::F16, DType::Q5_K, DType::Q4_0}, 19, 512, true);
    const HostTensor x = random.tensor({6, 512});
    HostTensor stored = HostTensor::make(DType::F32, {6, owned.weight.rows});
    HostTensor out = HostTensor::make(DType::F32, {6, owned.weight.rows});
    backend->matmul(stored.view, x.view, owned.weight);
    backend->matmul(out.view, x.view, backend->prepare(owned.weight));
    EXPECT_TRUE(same_bits(out.view, stored.view)) << backend->name();
  }
}

// Codes and scales at their ends: the products that panels hold as floats must stay exact, and so must sums of 16 bits, which
// are largest where all activations have one sign.
TEST(Matmul, PreparedExtremesGiveTheBitsOfStoredOnes) {
  for (const auto& backend : cpu_backends(1)) {
    for (DType type : weight_types()) {
      if (!is_block(type) || takes_tiles(*backend, type)) continue;
      for (const int fill : {0x00, 0x77, 0x7f, 0x80, 0xff}) {
        Random random(20);
        OwnedWeight owned = random_weight(random, {type}, 17, 2 * info(type).block_elements, false);
        fill_codes(owned.weight.parts[0], static_cast<uint8_t>(fill));
        const Weight prepared = backend->prepare(owned.weight);
        for (const int64_t tokens : {1, 5, 17}) {
          HostTensor x = HostTensor::make(DType::F32, {tokens, owned.weight.cols});
          for (int64_t i = 0; i < x.view.elements(); ++i) {
            const int64_t pattern = i / owned.weight.cols % 3;
            x.view.at<float>()[i] = pattern == 0 ? 1.0f : pattern == 1 || i % 7 == 6 ? -1.0f : 1.0f;
          }
          HostTensor stored = HostTensor::make(DType::F32, {tokens, 17});
          HostTensor out = HostTensor::make(DType::F32, {tokens, 17});
          backend->matmul(stored.view, x.view, owned.weight);
          backend->matmul(out.view, x.view, prepared);
          ASSERT_TRUE(same_bits(out.view, stored.view))
              << backend->name() << " " << name(type) << " " << fill << " n " << tokens;
        }
      }
    }
  }
}

TEST(Matmul, PartsOfDifferentTypesAreOneGemm) {
  for (const auto& backend : cpu_backends(2)) {
    SCOPED_TRACE(backend->name());
    Random random(10);
    const OwnedWeight owned = random_weight(random, {DType::Q4_1, DType::F32, DType::Q6_K}, 19, 256, true);
    const HostTensor x = random.tensor({5, 256});
    HostTensor out = HostTensor::make(DType::F32, {5, owned.weight.rows});
    backend->matmul(out.view, x.view, owned.weight);
    for (size_t part = 0; part < owned.weight.parts.size(); ++part) {
      const auto first = static_cast<int64_t>(part) * 19;
      Weight one{.parts = {owned.weight.parts[part]},
                 .rows = 19,
                 .cols = 256,
                 .bias = owned.weight.bias.rows(first, first + 19)};
      HostTensor expected = HostTensor::make(DType::F32, {5, 19});
      backend->matmul(expected.view, x.view, one);
      EXPECT_TRUE(same_bits(out.view.columns(first, first + 19), expected.view)) << "part " << part;
    }
  }
}

TEST(Matmul, ZerosAndTinyActivationsStayFinite) {
  for (const auto& backend : cpu_backends(1)) {
    Random random(11);
    const OwnedWeight owned = random_weight(random, {DType::Q4_1}, 5, 64, false);
    HostTensor x = HostTensor::make(DType::F32, {2, 64});
    for (int i = 0; i < 64; ++i) x.view.at<float>(1)[i] = 1e-40f;
    HostTensor out = HostTensor::make(DType::F32, {2, 5});
    backend->matmul(out.view, x.view, owned.weight);
    for (float value : values_of(out.view)) EXPECT_EQ(value, 0.0f) << backend->name();
  }
}

TEST(Matmul, HeadsAgreeWithOneGemmEach) {
  for (const auto& backend : cpu_backends(2)) {
    for (DType type : {DType::BF16, DType::Q8_0}) {
      Random random(12);
      std::vector<OwnedWeight> owned;
      std::vector<Weight> weights;
      for (int head = 0; head < 3; ++head) {
        owned.push_back(random_weight(random, {type}, 10, 64, false));
        weights.push_back(owned.back().weight);
      }
      const HostTensor x = random.tensor({5, 3, 64});
      HostTensor out = HostTensor::make(DType::F32, {5, 3, 10});
      backend->matmul_heads(out.view, x.view, weights);
      for (int64_t token = 0; token < 5; ++token) {
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

TEST(Embed, RowsAreDecodedExactly) {
  const auto reference = kernels::make_ref_backend();
  for (const auto& backend : cpu_backends(2)) {
    for (DType type : weight_types()) {
      Random random(13);
      const OwnedWeight owned = random_weight(random, {type, type}, 9, 256, false);
      const std::vector<int32_t> ids{0, 17, 8, 9, 9};
      HostTensor out = HostTensor::make(DType::F32, {5, 256});
      HostTensor expected = HostTensor::make(DType::F32, {5, 256});
      backend->embed(out.view, owned.weight, ids);
      reference->embed(expected.view, owned.weight, ids);
      EXPECT_TRUE(same_bits(out.view, expected.view)) << backend->name() << " " << name(type);
    }
  }
}

}  // namespace
}  // namespace sluice::parity

// Scores and weighted sums on levels with matrix tiles: every type, width, number of queries and first key, the same bits
// alone and among others.
#include <cmath>
#include <cstring>

#include "kernels/cpu/simd/isa.h"
#include "tensor/half.h"
#include "tests/parity/harness.h"

namespace sluice::parity {
namespace {

using kernels::cpu::IsaLevel;
using kernels::cpu::KvRows;

constexpr int64_t kMostQueries = 99;
constexpr int64_t kMostKeys = 150;
constexpr int64_t kStride = 160;

std::vector<IsaLevel> tile_levels() {
  std::vector<IsaLevel> levels = kernels::cpu::available_isa_levels();
  std::erase_if(levels, [](const IsaLevel& level) { return level.name != "amx"; });
  for (const IsaLevel& level : kernels::cpu::modelled_isa_levels()) levels.push_back(level);
  return levels;
}

// Rows of keys or values as a cache holds them, at addresses that are aligned to nothing.
struct StoredRows {
  StoredRows(DType type_of_rows, int64_t row_width) : type(type_of_rows), width(row_width) {
    Random random(51);
    const HostTensor x = random.tensor({kMostKeys, width});
    const int64_t bytes = info(type).block_bytes, stride = width * bytes + 4;
    memory.resize(static_cast<size_t>(kMostKeys * stride + 4));
    for (int64_t key = 0; key < kMostKeys; ++key) {
      uint8_t* row = memory.data() + key * stride + 4;
      rows.push_back(row);
      for (int64_t i = 0; i < width; ++i) {
        const float value = x.view.at<float>(key)[i];
        const uint16_t half = type == DType::F16 ? f32_to_f16(value) : f32_to_bf16(value);
        values.push_back(type == DType::F32   ? value
                         : type == DType::F16 ? f16_to_f32(half)
                                              : bf16_to_f32(half));
        if (type == DType::F32) std::memcpy(row + 4 * i, &value, 4);
        if (type != DType::F32) std::memcpy(row + 2 * i, &half, 2);
      }
    }
  }
  KvRows from(int64_t first, int64_t count, int64_t before = 0) const {
    return {type, rows.data() + first, nullptr, count, width, before};
  }

  DType type;
  int64_t width;
  std::vector<uint8_t> memory;
  std::vector<const uint8_t*> rows;
  std::vector<float> values;  // [key][width]
};

struct Kernels {
  const kernels::cpu::KernelTable& table;
  const StoredRows& rows;

  std::vector<float> scores(const float* x, int64_t queries, int64_t keys) const {
    std::vector<const float*> pointers;
    for (int64_t n = 0; n < queries; ++n) pointers.push_back(x + n * rows.width);
    std::vector<float> out(static_cast<size_t>(queries * kStride));
    table.scores(out.data(), kStride, pointers.data(), queries, rows.from(0, keys));
    return out;
  }
  std::vector<float> sums(const float* weights, int64_t queries, const KvRows& values) const {
    std::vector<float> out(static_cast<size_t>(queries * rows.width));
    table.weighted_sum({out.data(), weights, kStride, queries, values});
    return out;
  }
};

bool same(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, static_cast<size_t>(count) * sizeof(float)) == 0;
}

void check_scores(const Kernels& kernels, const HostTensor& x, int64_t queries, int64_t keys) {
  const int64_t width = kernels.rows.width;
  const std::vector<float> out = kernels.scores(x.view.at<float>(), queries, keys);
  for (int64_t n = 0; n < queries; ++n) {
    const float* row = out.data() + n * kStride;
    const std::vector<float> alone = kernels.scores(x.view.at<float>(n), 1, keys);
    ASSERT_TRUE(same(row, alone.data(), keys)) << n;
    ASSERT_EQ(row[keys], 0.0f);  // nothing is written beside them
    for (int64_t key = 0; key < keys; ++key) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < width; ++i) {
        const double term =
            double(x.view.at<float>(n)[i]) * kernels.rows.values[static_cast<size_t>(key * width + i)];
        sum += term;
        size += std::fabs(term);
      }
      ASSERT_NEAR(row[key], sum, 2e-5 * size) << n << " " << key;
    }
  }
}

void check_sums(const Kernels& kernels, const HostTensor& weights, int64_t queries, const KvRows& values) {
  const int64_t width = values.width;
  const std::vector<float> out = kernels.sums(weights.view.at<float>(), queries, values);
  const int64_t first = values.rows - kernels.rows.rows.data();
  for (int64_t n = 0; n < queries; ++n) {
    const float* row = out.data() + n * width;
    const std::vector<float> alone = kernels.sums(weights.view.at<float>(n), 1, values);
    ASSERT_TRUE(same(row, alone.data(), width)) << n;
    for (int64_t i = 0; i < width; ++i) {
      double sum = 0, size = 0;
      for (int64_t key = 0; key < values.count; ++key) {
        const double term = double(weights.view.at<float>(n)[key]) *
                            kernels.rows.values[static_cast<size_t>((first + key) * width + i)];
        sum += term;
        size += std::fabs(term);
      }
      ASSERT_NEAR(row[i], sum, 2e-5 * size) << n << " " << i;
    }
  }
}

TEST(TileAttention, EveryTypeWidthAndNumberOfQueries) {
  for (const IsaLevel& level : tile_levels()) {
    for (const DType type : {DType::F32, DType::F16, DType::BF16}) {
      for (const int64_t width : {5, 16, 40, 64, 80, 128, 576, 641}) {
        if (small_run() && width > 80) continue;
        const StoredRows rows(type, width);
        const Kernels kernels{level.table(), rows};
        Random random(52);
        const HostTensor x = random.tensor({kMostQueries, width});
        const HostTensor weights = random.tensor({kMostQueries, kStride});
        for (const auto& [queries, keys, before] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 0},
                                                    {3, 70, 7},
                                                    {4, 64, 31},
                                                    {5, 33, 1},
                                                    {8, 50, 3},
                                                    {9, 50, 3},
                                                    {16, 97, 0},
                                                    {17, 65, 16},
                                                    {33, 15, 30},
                                                    {99, 47, 5}}) {
          if (width > 128 && queries > 33) continue;
          SCOPED_TRACE(::testing::Message() << level.name << " " << name(type) << " width " << width
                                            << " queries " << queries << " keys " << keys);
          check_scores(kernels, x, queries, keys);
          check_sums(kernels, weights, queries, rows.from(before, keys, before));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Keys that no query sees may be given with weight 0 or left out.
TEST(TileAttention, GroupsOfKeysBeginAtMultiplesOf32) {
  for (const IsaLevel& level : tile_levels()) {
    for (const DType type : {DType::F32, DType::F16, DType::BF16}) {
      const StoredRows rows(type, 48);
      const Kernels kernels{level.table(), rows};
      Random random(53);
      for (const int64_t skipped : {1, 13, 31, 32, 45, 77}) {
        SCOPED_TRACE(::testing::Message() << level.name << " " << name(type) << " from " << skipped);
        HostTensor weights = random.tensor({3, kStride});
        HostTensor some = HostTensor::make(DType::F32, {3, kStride});
        for (int64_t n = 0; n < 3; ++n) {
          float* row = weights.view.at<float>(n);
          std::fill(row, row + skipped, 0.0f);
          std::fill(row + 120, row + kStride, 0.0f);
          std::copy(row + skipped, row + kStride, some.view.at<float>(n));
        }
        const std::vector<float> all = kernels.sums(weights.view.at<float>(), 3, rows.from(0, kMostKeys));
        const std::vector<float> part =
            kernels.sums(some.view.at<float>(), 3, rows.from(skipped, 120 - skipped, skipped % 32));
        ASSERT_TRUE(same(all.data(), part.data(), 3 * 48));
      }
    }
  }
}

// The model of the tile instructions is what they do.
TEST(TileAttention, TheModelHasTheBitsOfTheInstructions) {
  const std::vector<IsaLevel> levels = tile_levels();
  if (levels.size() < 2) GTEST_SKIP() << "no AMX here";
  for (const DType type : {DType::F32, DType::F16, DType::BF16}) {
    const StoredRows rows(type, 72);
    Random random(54);
    const HostTensor x = random.tensor({20, 72}), weights = random.tensor({20, kStride});
    const Kernels real{levels[0].table(), rows}, model{levels[1].table(), rows};
    const auto scores = real.scores(x.view.at<float>(), 20, 140),
               model_scores = model.scores(x.view.at<float>(), 20, 140);
    EXPECT_TRUE(same(scores.data(), model_scores.data(), 20 * kStride)) << name(type);
    const auto sums = real.sums(weights.view.at<float>(), 20, rows.from(2, 140)),
               model_sums = model.sums(weights.view.at<float>(), 20, rows.from(2, 140));
    EXPECT_TRUE(same(sums.data(), model_sums.data(), 20 * 72)) << name(type);
  }
}

}  // namespace
}  // namespace sluice::parity

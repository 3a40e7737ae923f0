// The table of GEMM kernels: it needs no GPU.
#include "kernels/cuda/gemm/gemm_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kArch = kHopperGemms;
constexpr auto kArchs = {kHopperGemms, kAnyGemms};
constexpr int64_t kMostTokens = 8192;
constexpr auto kUses = {GemmUse::Plain, GemmUse::Gated, GemmUse::Added, GemmUse::Experts, GemmUse::ExpertFfn};
constexpr auto kModes = {GemmMode::Bf16, GemmMode::F32, GemmMode::FixedBf16, GemmMode::FixedF32};
constexpr auto kShapes = {GemmShape::Small, GemmShape::Medium, GemmShape::Tall};

bool is_weight(DType type) {
  return type != DType::I8 && type != DType::I32 && type != DType::U8;
}

GemmKernel last_kernel(const GemmRow& row) {
  const auto end = std::ranges::find(row.kernels, GemmKernel::None);
  return end == row.kernels.begin() ? GemmKernel::None : *(end - 1);
}

// How many rows have each number of tokens: a border of a row changes it, whatever the other rows say.
std::vector<int> rows_by_tokens(GemmKey key) {
  std::vector<int> counts(kMostTokens + 1, 0);
  for (const GemmRow& row : kGemmTable) {
    key.tokens = row.first;
    if (!matches(row, key)) continue;
    const int64_t last = std::min(row.last, kMostTokens);
    for (int64_t tokens = row.first; tokens <= last; ++tokens) ++counts[static_cast<size_t>(tokens)];
  }
  return counts;
}

void expect_one_row(const GemmKey& key, const std::string& what) {
  const std::vector<int> counts = rows_by_tokens(key);
  const auto wrong = std::find_if(counts.begin() + 1, counts.end(), [](int count) { return count != 1; });
  ASSERT_EQ(wrong, counts.end()) << what << ", " << wrong - counts.begin() << " tokens: " << *wrong
                                 << " rows";
}

TEST(GemmTable, HasOneRowForEveryTypeAndEveryNumberOfTokens) {
  for (const int arch : kArchs) {
    int types = 0;
    for (const DTypeInfo& type : kDTypes) {
      if (!is_weight(type.type)) continue;
      ++types;
      for (const GemmUse use : kUses)
        for (const GemmMode mode : kModes)
          for (const GemmShape shape : kShapes)
            for (const bool fp8 : {false, true})
              expect_one_row({arch, use, mode, stored_as(type.type, fp8, mode, arch), shape, 1},
                             "sm_" + std::to_string(arch) + " " + std::string(type.name) + " use " +
                                 std::to_string(static_cast<int>(use)) + " mode " +
                                 std::to_string(static_cast<int>(mode)) + " shape " +
                                 std::to_string(static_cast<int>(shape)));
    }
    EXPECT_EQ(types, 35);
  }
}

// Kernels that need sm_90a, or fp8 on both sides, are in its rows alone.
TEST(GemmTable, HasKernelsForAnyArchitecture) {
  using enum GemmKernel;
  constexpr std::array kEverywhere{None,   Gemv, CublasLt, CublasLtSplit, ToBf16,
                                   Panels, Tile, MoeGemv,  Sorted,        Separate};
  for (const GemmRow& row : kGemmTable) {
    if (row.arch != kAnyGemms) continue;
    for (const GemmKernel kernel : row.kernels)
      EXPECT_NE(std::ranges::find(kEverywhere, kernel), kEverywhere.end()) << name(kernel);
  }
  EXPECT_EQ(stored_as(DType::Q4_K, false, GemmMode::Bf16, kAnyGemms), Stored::Blocks);
  EXPECT_EQ(stored_as(DType::Q4_K, false, GemmMode::Bf16, kHopperGemms), Stored::Units);
}

TEST(GemmTable, FindsTheRowOfItsKey) {
  const GemmKey key{kArch, GemmUse::Plain, GemmMode::Bf16, Stored::Units, GemmShape::Medium, 1};
  for (int64_t tokens = 1; tokens <= kMostTokens; ++tokens) {
    GemmKey at = key;
    at.tokens = tokens;
    const GemmKernel expected = tokens <= 8     ? GemmKernel::UnitsFew
                                : tokens <= 512 ? GemmKernel::UnitsMany
                                                : GemmKernel::ToBf16;
    ASSERT_EQ(gemm_row(at).kernels[0], expected) << tokens;
  }
  const auto plain = [](Stored stored, GemmShape shape, int64_t tokens) {
    return gemm_row({kArch, GemmUse::Plain, GemmMode::Bf16, stored, shape, tokens}).kernels[0];
  };
  EXPECT_EQ(plain(Stored::Bf16, GemmShape::Small, 1), GemmKernel::Gemv);
  EXPECT_EQ(plain(Stored::Bf16, GemmShape::Medium, 1), GemmKernel::SmallM);
  EXPECT_EQ(plain(Stored::Bf16, GemmShape::Medium, 16), GemmKernel::SmallM);
  EXPECT_EQ(plain(Stored::Bf16, GemmShape::Medium, 32), GemmKernel::Fixed);
  EXPECT_EQ(plain(Stored::Bf16, GemmShape::Tall, 32), GemmKernel::CublasLt);
  EXPECT_EQ(plain(Stored::Bf16, GemmShape::Medium, 33), GemmKernel::Split);
  EXPECT_EQ(plain(Stored::Bf16, GemmShape::Medium, 97), GemmKernel::CublasLt);
  EXPECT_EQ(plain(Stored::Fp8, GemmShape::Medium, 33), GemmKernel::Split);
  EXPECT_EQ(plain(Stored::Fp8, GemmShape::Medium, 257), GemmKernel::CublasLtFp8);
  EXPECT_EQ(plain(Stored::Blocks, GemmShape::Medium, 64), GemmKernel::Panels);
}

// A matrix whose shape the first kernels do not take has the same last one for any number of tokens, and no kernel among
// them sums in an order that depends on that number.
TEST(GemmTable, SumsInOneOrderWhereItIsFixed) {
  using enum GemmKernel;
  for (const int64_t tokens : {1, 8, 32, 33, 64, 8192}) {
    const GemmRow& plain =
        gemm_row({kArch, GemmUse::Plain, GemmMode::FixedBf16, Stored::Bf16, GemmShape::Medium, tokens});
    EXPECT_EQ(plain.kernels[0], tokens <= 32 ? Fixed : CublasLtFixed);
    for (const GemmKernel kernel : plain.kernels)
      EXPECT_TRUE(kernel == Fixed || kernel == CublasLtFixed || kernel == Tile || kernel == None)
          << name(kernel);
    EXPECT_EQ(gemm_row({kArch, GemmUse::Gated, GemmMode::FixedBf16, Stored::Bf16, GemmShape::Medium, tokens})
                  .kernels[0],
              Swiglu);
  }
}

// The last kernel of a row takes any shape.
TEST(GemmTable, EndsEveryRowWithAKernelForAnyShape) {
  using enum GemmKernel;
  for (const GemmRow& row : kGemmTable) {
    const bool plain = row.use == GemmUse::Plain || row.use == GemmUse::Experts;
    const std::vector<GemmKernel> any = plain
                                            ? std::vector{Tile, Panels, ToBf16}
                                            : std::vector{row.use == GemmUse::ExpertFfn ? Sorted : Separate};
    EXPECT_NE(std::ranges::find(any, last_kernel(row)), any.end()) << name(last_kernel(row));
    EXPECT_LE(row.first, row.last);
    EXPECT_GE(row.first, 1);
  }
}

// A matrix that was unpacked is looked up again, as bf16: that must not lead back.
TEST(GemmTable, UnpacksOnce) {
  for (const GemmRow& row : kGemmTable) {
    if (!has(row.stored, Stored::Bf16)) continue;
    for (const GemmKernel kernel : row.kernels)
      EXPECT_TRUE(kernel != GemmKernel::ToBf16 && kernel != GemmKernel::Panels) << name(kernel);
  }
}

TEST(GemmTable, IsPrintedWithOneLineForEachRow) {
  const std::vector<std::string> lines = describe_gemms(kArch);
  EXPECT_EQ(lines.size() + describe_gemms(kAnyGemms).size(), kGemmTable.size());
  const auto said = [&](std::string_view text) {
    return std::ranges::any_of(lines, [&](const std::string& line) { return line.find(text) != line.npos; });
  };
  EXPECT_TRUE(said("tokens 9-512"));
  EXPECT_TRUE(said("units many, else to bf16"));
  EXPECT_TRUE(has_gemms(kArch));
  EXPECT_TRUE(has_gemms(kAnyGemms));
  EXPECT_FALSE(has_gemms(100));
  EXPECT_TRUE(describe_gemms(100).empty());
}

}  // namespace
}  // namespace sluice::kernels::cuda

// Which kernel multiplies: one table over architecture, use, activations, how the matrix is stored, a class of its shape,
// and a range of tokens (rows of activations). Every combination has exactly one row. A row names its kernel and, for
// shapes that this one does not take (alignment, widths), the kernels to try in its place; the last takes any shape.
// Which of cuBLASLt's algorithms CublasLt means is timed when the program starts (cublaslt_gemm.h).
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/common/features.h"
#include "kernels/cuda/gemm/quantized/units.h"

namespace sluice::kernels::cuda {

// Plain: out = x · Wᵀ + bias. Gated: out = activation(gate) * up of both halves. Added: out += x · Wᵀ.
// Experts: one matrix per group of rows; tokens: their mean. ExpertFfn: a whole mixture.
enum class GemmUse : uint8_t { Plain, Gated, Added, Experts, ExpertFfn };
// What the activations are. Fixed: sums whose order does not depend on the number of tokens.
enum class GemmMode : uint8_t { Bf16, F32, FixedBf16, FixedF32 };
// How a matrix lies on the device. Experts: Bf16 in place, by tensor maps; the others by way of bf16 panels.
enum class Stored : uint8_t { Bf16, Fp8, Blocks, Units };
// Plain, Added: Small: a GEMV has all rows on their way at once; Tall: as many rows as a vocabulary; Medium: between.
// Gated: Small: too few rows to keep the device busy; else Medium. Experts: Small: panels of one part; Medium: of two.
enum class GemmShape : uint8_t { Small, Medium, Tall };

enum class GemmKernel : uint8_t {
  None,
  Gemv,           // gemv.cu
  SmallM,         // gemm_small_m_sm90.cu
  SmallMFixed,    // the same, some tokens after the others, in a fixed order; fp8
  Fixed,          // gemm_fixed_sm90.cu, some tokens after the others
  Swiglu,         // gemm_swiglu_sm90.cu
  Split,          // gemm_split_sm90.cu; of fp8 matrices tokens rounded to fp8
  CublasLt,       // bf16 on both sides; Added: into what is there
  CublasLtFixed,  // algorithms that sum as gemm_fixed_sm90.cu does
  CublasLtFp8,    // tokens rounded to fp8
  CublasLtSplit,  // f32 tokens as two bf16 numbers each
  UnitsFew,       // units_few.cuh
  UnitsMany,      // units_many.cuh
  ToBf16,         // the matrix unpacked to bf16, then the row of such matrices
  Panels,         // rows of blocks unpacked to bf16 at a time, then the row of such matrices
  PanelsSm90,     // the same for f32 tokens, by grouped_gemm_sm90.cu
  Tile,           // gemm_grouped_generic.cu
  GroupedSm90,    // grouped_gemm_sm90.cu
  MoeGemv,        // moe_gemv.cu
  Sorted,         // tokens sorted by expert, then Experts
  Separate,       // a plain GEMM, then a pass over its result
};

// Architectures of the rows: code of sm_90a, and any code from sm_80 on.
inline constexpr int kHopperGemms = 90, kAnyGemms = 80;

struct GemmRow {
  int arch;
  GemmUse use;
  uint8_t modes, stored, shapes;      // bit sets of the enums
  int64_t first, last;                // tokens
  std::array<GemmKernel, 4> kernels;  // None at the end
};

struct GemmKey {
  int arch;
  GemmUse use;
  GemmMode mode;
  Stored stored;
  GemmShape shape;
  int64_t tokens;
};

inline constexpr int64_t kAnyTokens = std::numeric_limits<int64_t>::max();

template <class... E>
constexpr uint8_t any_of(E... values) {
  return static_cast<uint8_t>(((1u << static_cast<unsigned>(values)) | ...));
}
template <class E>
constexpr bool has(uint8_t set, E value) {
  return (set >> static_cast<unsigned>(value) & 1u) != 0;
}

namespace gemm_rows {

using enum GemmKernel;
inline constexpr uint8_t kBf16 = any_of(GemmMode::Bf16), kF32 = any_of(GemmMode::F32),
                         kFixedBf16 = any_of(GemmMode::FixedBf16), kFixedF32 = any_of(GemmMode::FixedF32),
                         kFixed = kFixedBf16 | kFixedF32, kEachMode = kBf16 | kF32 | kFixed;
inline constexpr uint8_t kInBf16 = any_of(Stored::Bf16), kInFp8 = any_of(Stored::Fp8),
                         kInBlocks = any_of(Stored::Blocks), kInUnits = any_of(Stored::Units),
                         kEachStored = kInBf16 | kInFp8 | kInBlocks | kInUnits;
inline constexpr uint8_t kSmall = any_of(GemmShape::Small), kMedium = any_of(GemmShape::Medium),
                         kTall = any_of(GemmShape::Tall), kEachShape = kSmall | kMedium | kTall;

// clang-format off
inline constexpr auto kTable = std::to_array<GemmRow>({
    // Of one token, having more of the weights on their way when the kernel in front ends is worth more than the GEMV's
    // higher rate, but for matrices that are on their way as a whole in either and for very tall ones. A tall matrix has
    // tiles enough for cuBLASLt to be faster from four tokens on. A step of 32 sequences of an 8B takes 5.0 ms with Fixed
    // and 5.2 with SmallM on an H200.
    {90, GemmUse::Plain, kBf16, kInBf16, kSmall | kTall, 1, 1, {Gemv, SmallM, CublasLt, Tile}},
    {90, GemmUse::Plain, kBf16, kInBf16, kMedium, 1, 1, {SmallM, Gemv, CublasLt, Tile}},
    {90, GemmUse::Plain, kBf16, kInBf16, kEachShape, 2, 3, {SmallM, CublasLt, Tile}},
    {90, GemmUse::Plain, kBf16, kInBf16, kSmall | kMedium, 4, 16, {SmallM, CublasLt, Tile}},
    {90, GemmUse::Plain, kBf16, kInBf16, kSmall | kMedium, 17, 32, {Fixed, SmallM, CublasLt, Tile}},
    {90, GemmUse::Plain, kBf16, kInBf16, kTall, 4, 32, {CublasLt, SmallM, Tile}},
    {90, GemmUse::Plain, kBf16, kInBf16, kSmall | kMedium, 33, 96, {Split, CublasLt, Tile}},
    {90, GemmUse::Plain, kBf16, kInBf16, kTall, 33, 96, {CublasLt, Tile}},
    {90, GemmUse::Plain, kBf16, kInBf16, kEachShape, 97, kAnyTokens, {CublasLt, Tile}},
    {90, GemmUse::Plain, kBf16, kInFp8, kSmall | kTall, 1, 1, {Gemv, SmallM, CublasLtFp8, Tile}},
    {90, GemmUse::Plain, kBf16, kInFp8, kMedium, 1, 1, {SmallM, Gemv, CublasLtFp8, Tile}},
    {90, GemmUse::Plain, kBf16, kInFp8, kEachShape, 2, 32, {SmallM, CublasLtFp8, Tile}},
    {90, GemmUse::Plain, kBf16, kInFp8, kEachShape, 33, 256, {Split, CublasLtFp8, Tile}},
    {90, GemmUse::Plain, kBf16, kInFp8, kEachShape, 257, kAnyTokens, {CublasLtFp8, Tile}},
    {90, GemmUse::Plain, kBf16, kInBlocks, kEachShape, 1, 8, {Gemv, Tile}},
    {90, GemmUse::Plain, kBf16, kInBlocks, kEachShape, 9, 63, {Tile}},
    {90, GemmUse::Plain, kBf16, kInBlocks, kEachShape, 64, kAnyTokens, {Panels}},
    {90, GemmUse::Plain, kBf16, kInUnits, kEachShape, 1, 8, {UnitsFew, ToBf16}},
    {90, GemmUse::Plain, kBf16, kInUnits, kEachShape, 9, 512, {UnitsMany, ToBf16}},
    {90, GemmUse::Plain, kBf16, kInUnits, kEachShape, 513, kAnyTokens, {ToBf16}},
    // Panels of f32 tokens have two parts, and below 192 tokens there are not enough tiles of grouped_gemm_sm90.cu.
    {90, GemmUse::Plain, kF32, kInBf16, kEachShape, 1, 1, {Gemv, CublasLtSplit, Tile}},
    {90, GemmUse::Plain, kF32, kInBf16, kEachShape, 2, 191, {CublasLtSplit, Tile}},
    {90, GemmUse::Plain, kF32, kInBf16, kEachShape, 192, kAnyTokens, {CublasLtSplit, PanelsSm90, Tile}},
    {90, GemmUse::Plain, kF32, kInFp8, kEachShape, 1, 1, {Gemv, Tile}},
    {90, GemmUse::Plain, kF32, kInFp8, kEachShape, 2, 191, {Tile}},
    {90, GemmUse::Plain, kF32, kInBlocks, kEachShape, 1, 8, {Gemv, Tile}},
    {90, GemmUse::Plain, kF32, kInBlocks, kEachShape, 9, 191, {Tile}},
    {90, GemmUse::Plain, kF32, kInFp8 | kInBlocks, kEachShape, 192, kAnyTokens, {PanelsSm90, Tile}},
    // A matrix has one order of sums for all numbers of tokens: whether it fits Fixed or Tile does not depend on them.
    {90, GemmUse::Plain, kFixedBf16, kInBf16, kEachShape, 1, 32, {Fixed, Tile}},
    {90, GemmUse::Plain, kFixedBf16, kInBf16, kEachShape, 33, kAnyTokens, {CublasLtFixed, Fixed, Tile}},
    {90, GemmUse::Plain, kFixedBf16, kInFp8, kEachShape, 1, kAnyTokens, {SmallMFixed, Tile}},
    {90, GemmUse::Plain, kFixedBf16, kInBlocks, kEachShape, 1, kAnyTokens, {Tile}},
    {90, GemmUse::Plain, kFixedF32, kInBf16 | kInFp8 | kInBlocks, kEachShape, 1, kAnyTokens, {Tile}},
    {90, GemmUse::Plain, kF32 | kFixed, kInUnits, kEachShape, 1, kAnyTokens, {ToBf16}},

    // Gate and up in one beat the kernel for few tokens where there are rows enough to keep the device busy; else a GEMM
    // and a pass do, up to 80 tokens.
    {90, GemmUse::Gated, kBf16, kInBf16 | kInFp8, kEachShape, 1, 1, {Gemv, SmallM, Separate}},
    {90, GemmUse::Gated, kBf16, kInBf16, kEachShape, 2, 16, {SmallM, Separate}},
    {90, GemmUse::Gated, kBf16, kInBf16, kSmall, 17, 32, {SmallM, Separate}},
    {90, GemmUse::Gated, kBf16, kInBf16, kSmall, 33, 79, {Split, Separate}},
    {90, GemmUse::Gated, kBf16, kInBf16, kMedium | kTall, 17, 32, {Swiglu, SmallM, Separate}},
    {90, GemmUse::Gated, kBf16, kInBf16, kMedium | kTall, 33, 79, {Swiglu, Separate}},
    {90, GemmUse::Gated, kBf16, kInBf16, kEachShape, 80, kAnyTokens, {Swiglu, Separate}},
    {90, GemmUse::Gated, kBf16, kInFp8, kEachShape, 2, 32, {SmallM, Separate}},
    {90, GemmUse::Gated, kBf16, kInFp8, kEachShape, 33, 256, {Split, Separate}},
    {90, GemmUse::Gated, kBf16, kInFp8, kEachShape, 257, kAnyTokens, {Separate}},
    {90, GemmUse::Gated, kBf16, kInBlocks, kEachShape, 1, kAnyTokens, {Separate}},
    {90, GemmUse::Gated, kBf16, kInUnits, kEachShape, 1, 8, {UnitsFew, ToBf16, Separate}},
    {90, GemmUse::Gated, kBf16, kInUnits, kEachShape, 9, 512, {UnitsMany, ToBf16, Separate}},
    {90, GemmUse::Gated, kBf16, kInUnits, kEachShape, 513, kAnyTokens, {ToBf16, Separate}},
    {90, GemmUse::Gated, kFixedBf16, kInBf16, kEachShape, 1, kAnyTokens, {Swiglu, Separate}},
    {90, GemmUse::Gated, kFixedBf16, kInFp8 | kInBlocks | kInUnits, kEachShape, 1, kAnyTokens, {Separate}},
    {90, GemmUse::Gated, kF32 | kFixedF32, kEachStored, kEachShape, 1, kAnyTokens, {Separate}},

    // Of many tokens the norm's pass over x and the branch costs more than reading x in the GEMM's.
    {90, GemmUse::Added, kBf16, kInBf16 | kInFp8, kEachShape, 1, 1, {Gemv, Separate}},
    // A sum whose norm the next GEMM takes over; else apart.
    {90, GemmUse::Added, kBf16, kInBf16, kEachShape, 2, 16, {SmallM, Separate}},
    {90, GemmUse::Added, kBf16, kInBf16, kEachShape, 17, 32, {Separate}},
    {90, GemmUse::Added, kBf16, kInBf16, kEachShape, 33, 96, {Split, Separate}},
    {90, GemmUse::Added, kBf16, kInBf16, kEachShape, 97, 127, {Separate}},
    {90, GemmUse::Added, kBf16, kInBf16, kEachShape, 128, kAnyTokens, {CublasLt, Separate}},
    {90, GemmUse::Added, kBf16, kInUnits, kEachShape, 1, 8, {UnitsFew, Separate}},
    {90, GemmUse::Added, kBf16, kInUnits, kEachShape, 9, 512, {Separate}},
    {90, GemmUse::Added, kBf16, kInUnits, kEachShape, 513, kAnyTokens, {ToBf16, Separate}},
    {90, GemmUse::Added, kBf16, kInFp8, kEachShape, 2, kAnyTokens, {Separate}},
    {90, GemmUse::Added, kBf16, kInBlocks, kEachShape, 1, kAnyTokens, {Separate}},
    {90, GemmUse::Added, kF32 | kFixed, kEachStored, kEachShape, 1, kAnyTokens, {Separate}},

    {90, GemmUse::Experts, kBf16 | kF32, kInBf16, kEachShape, 1, kAnyTokens, {GroupedSm90, Tile}},
    {90, GemmUse::Experts, kBf16 | kF32, kInFp8 | kInBlocks | kInUnits, kSmall, 1, 39, {Tile}},
    {90, GemmUse::Experts, kBf16 | kF32, kInFp8 | kInBlocks | kInUnits, kSmall, 40, kAnyTokens, {GroupedSm90, Tile}},
    {90, GemmUse::Experts, kBf16 | kF32, kInFp8 | kInBlocks | kInUnits, kMedium | kTall, 1, 79, {Tile}},
    {90, GemmUse::Experts, kBf16 | kF32, kInFp8 | kInBlocks | kInUnits, kMedium | kTall, 80, kAnyTokens, {GroupedSm90, Tile}},
    {90, GemmUse::Experts, kFixed, kEachStored, kEachShape, 1, kAnyTokens, {Tile}},
    // Up to four tokens each reads its experts' matrices by itself.
    {90, GemmUse::ExpertFfn, kBf16 | kF32, kEachStored, kEachShape, 1, 4, {MoeGemv, Sorted}},
    {90, GemmUse::ExpertFfn, kBf16 | kF32, kEachStored, kEachShape, 5, kAnyTokens, {Sorted}},
    {90, GemmUse::ExpertFfn, kFixed, kEachStored, kEachShape, 1, kAnyTokens, {Sorted}},

    // Any architecture: mma.sync and cuBLASLt. No matrix is kept in units there.
    {80, GemmUse::Plain, kBf16, kInBf16, kEachShape, 1, 1, {Gemv, CublasLt, Tile}},
    {80, GemmUse::Plain, kBf16, kInBf16, kEachShape, 2, kAnyTokens, {CublasLt, Tile}},
    {80, GemmUse::Plain, kBf16, kInFp8, kEachShape, 1, 1, {Gemv, Tile}},
    {80, GemmUse::Plain, kBf16, kInFp8, kEachShape, 2, 63, {Tile}},
    {80, GemmUse::Plain, kBf16, kInBlocks, kEachShape, 1, 8, {Gemv, Tile}},
    {80, GemmUse::Plain, kBf16, kInBlocks, kEachShape, 9, 63, {Tile}},
    {80, GemmUse::Plain, kBf16, kInFp8 | kInBlocks, kEachShape, 64, kAnyTokens, {Panels}},
    {80, GemmUse::Plain, kF32, kInBf16, kEachShape, 1, 1, {Gemv, CublasLtSplit, Tile}},
    {80, GemmUse::Plain, kF32, kInBf16, kEachShape, 2, kAnyTokens, {CublasLtSplit, Tile}},
    {80, GemmUse::Plain, kF32, kInFp8, kEachShape, 1, 1, {Gemv, Tile}},
    {80, GemmUse::Plain, kF32, kInFp8, kEachShape, 2, kAnyTokens, {Tile}},
    {80, GemmUse::Plain, kF32, kInBlocks, kEachShape, 1, 8, {Gemv, Tile}},
    {80, GemmUse::Plain, kF32, kInBlocks, kEachShape, 9, kAnyTokens, {Tile}},
    {80, GemmUse::Plain, kFixed, kInBf16 | kInFp8 | kInBlocks, kEachShape, 1, kAnyTokens, {Tile}},
    {80, GemmUse::Plain, kEachMode, kInUnits, kEachShape, 1, kAnyTokens, {ToBf16}},
    {80, GemmUse::Gated, kBf16, kInBf16 | kInFp8, kEachShape, 1, 1, {Gemv, Separate}},
    {80, GemmUse::Gated, kBf16, kInBf16 | kInFp8, kEachShape, 2, kAnyTokens, {Separate}},
    {80, GemmUse::Gated, kBf16, kInBlocks | kInUnits, kEachShape, 1, kAnyTokens, {Separate}},
    {80, GemmUse::Gated, kF32 | kFixed, kEachStored, kEachShape, 1, kAnyTokens, {Separate}},
    {80, GemmUse::Added, kBf16, kInBf16 | kInFp8, kEachShape, 1, 1, {Gemv, Separate}},
    {80, GemmUse::Added, kBf16, kInBf16, kEachShape, 2, 127, {Separate}},
    {80, GemmUse::Added, kBf16, kInBf16, kEachShape, 128, kAnyTokens, {CublasLt, Separate}},
    {80, GemmUse::Added, kBf16, kInFp8, kEachShape, 2, kAnyTokens, {Separate}},
    {80, GemmUse::Added, kBf16, kInBlocks | kInUnits, kEachShape, 1, kAnyTokens, {Separate}},
    {80, GemmUse::Added, kF32 | kFixed, kEachStored, kEachShape, 1, kAnyTokens, {Separate}},
    {80, GemmUse::Experts, kEachMode, kEachStored, kEachShape, 1, kAnyTokens, {Tile}},
    {80, GemmUse::ExpertFfn, kBf16 | kF32, kEachStored, kEachShape, 1, 4, {MoeGemv, Sorted}},
    {80, GemmUse::ExpertFfn, kBf16 | kF32, kEachStored, kEachShape, 5, kAnyTokens, {Sorted}},
    {80, GemmUse::ExpertFfn, kFixed, kEachStored, kEachShape, 1, kAnyTokens, {Sorted}},
});
// clang-format on

}  // namespace gemm_rows

inline constexpr const auto& kGemmTable = gemm_rows::kTable;

constexpr bool matches(const GemmRow& row, const GemmKey& key) {
  return row.arch == key.arch && row.use == key.use && has(row.modes, key.mode) &&
         has(row.stored, key.stored) && has(row.shapes, key.shape) && key.tokens >= row.first &&
         key.tokens <= row.last;
}

// Of the rows for a device.
constexpr int gemm_arch(const Features& features) {
  return features.hopper ? kHopperGemms : kAnyGemms;
}

// The one row of a key. REQUIRES: has_gemms(key.arch), key.tokens > 0.
const GemmRow& gemm_row(const GemmKey& key);
bool has_gemms(int arch);

constexpr GemmMode gemm_mode(DType activations, bool fixed_order) {
  if (activations == DType::F32) return fixed_order ? GemmMode::FixedF32 : GemmMode::F32;
  return fixed_order ? GemmMode::FixedBf16 : GemmMode::Bf16;
}

// Whether block types are kept in units: their kernels are sm_90a's, and add up in an order of their own.
constexpr bool keeps_units(int arch, GemmMode mode) {
  return arch == kHopperGemms && mode == GemmMode::Bf16;
}
// How matrices of a file's type are kept: plain ones as bf16 or, if asked for, fp8; block types in units where there are
// some for them, else as they are.
constexpr Stored stored_as(DType type, bool fp8, GemmMode mode, int arch = kHopperGemms) {
  if (!is_block(type)) return fp8 ? Stored::Fp8 : Stored::Bf16;
  return keeps_units(arch, mode) && units_of(type) != Units::None ? Stored::Units : Stored::Blocks;
}

std::string_view name(GemmKernel kernel);
// The rows of an architecture, one line each.
std::vector<std::string> describe_gemms(int arch);

}  // namespace sluice::kernels::cuda

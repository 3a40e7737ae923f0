#include "kernels/cuda/gemm/gemm_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace sluice::kernels::cuda {

namespace {

constexpr std::array<std::string_view, 21> kKernelNames{
    "none",     "gemv",           "small_m",      "small_m fixed",  "fixed",     "swiglu",     "split",
    "cublaslt", "cublaslt fixed", "cublaslt fp8", "cublaslt split", "units few", "units many", "to bf16",
    "panels",   "panels sm90",    "tile",         "grouped sm90",   "moe gemv",  "sorted",     "separate"};
constexpr std::array<std::string_view, 5> kUseNames{"plain", "gated", "added", "experts", "expert ffn"};
constexpr std::array<std::string_view, 4> kModeNames{"bf16", "f32", "fixed bf16", "fixed f32"};
constexpr std::array<std::string_view, 4> kStoredNames{"bf16", "fp8", "blocks", "units"};
constexpr std::array<std::string_view, 3> kShapeNames{"small", "medium", "tall"};

// "any" for all of them.
template <size_t Count>
std::string names_in(uint8_t set, const std::array<std::string_view, Count>& names) {
  if (set == (1u << Count) - 1) return "any";
  std::vector<std::string_view> chosen;
  for (size_t i = 0; i < Count; ++i)
    if (has(set, i)) chosen.push_back(names[i]);
  return fmt::format("{}", fmt::join(chosen, "|"));
}

std::string describe(const GemmRow& row) {
  std::vector<std::string_view> kernels;
  for (const GemmKernel kernel : row.kernels)
    if (kernel != GemmKernel::None) kernels.push_back(name(kernel));
  const std::string tokens = row.last == kAnyTokens  ? fmt::format("{}-", row.first)
                             : row.last == row.first ? fmt::format("{}", row.first)
                                                     : fmt::format("{}-{}", row.first, row.last);
  return fmt::format("sm_{} {:<10} activations {:<20} weights {:<16} shape {:<12} tokens {:<7} {}", row.arch,
                     kUseNames[static_cast<size_t>(row.use)], names_in(row.modes, kModeNames),
                     names_in(row.stored, kStoredNames), names_in(row.shapes, kShapeNames), tokens,
                     fmt::join(kernels, ", else "));
}

}  // namespace

std::string_view name(GemmKernel kernel) {
  return kKernelNames[static_cast<size_t>(kernel)];
}

const GemmRow& gemm_row(const GemmKey& key) {
  const auto found = std::ranges::find_if(kGemmTable, [&](const GemmRow& row) { return matches(row, key); });
  SLUICE_CHECK(found != kGemmTable.end());
  return *found;
}

bool has_gemms(int arch) {
  return std::ranges::any_of(kGemmTable, [&](const GemmRow& row) { return row.arch == arch; });
}

std::vector<std::string> describe_gemms(int arch) {
  std::vector<std::string> lines;
  for (const GemmRow& row : kGemmTable)
    if (row.arch == arch) lines.push_back(describe(row));
  return lines;
}

}  // namespace sluice::kernels::cuda

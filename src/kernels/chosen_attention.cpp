#include "kernels/chosen_attention.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace sluice::kernels {

namespace {

// Larger for a larger score, and for an earlier position of the same score: no two are equal.
uint64_t rank_of(float score, size_t position) {
  const auto bits = std::bit_cast<uint32_t>(score == 0.0f ? 0.0f : score);  // -0 is 0
  const uint32_t sign = 0x80000000U;
  const uint32_t ordered = (bits & sign) != 0 ? ~bits : bits | sign;
  const uint32_t high = score != score ? ~0U : ordered;
  return (uint64_t{high} << 32) | (~static_cast<uint32_t>(position));
}

}  // namespace

void best_positions(std::span<int32_t> out, std::span<const float> scores) {
  SLUICE_CHECK_LE(out.size(), scores.size());
  std::vector<uint64_t> ranks(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) ranks[i] = rank_of(scores[i], i);
  const auto end = ranks.begin() + static_cast<std::ptrdiff_t>(out.size());
  if (end != ranks.end()) std::nth_element(ranks.begin(), end, ranks.end(), std::greater<>());
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int32_t>(~static_cast<uint32_t>(ranks[i]));
  std::sort(out.begin(), out.end());
}

void best_blocks(std::span<int32_t> out, std::span<const float> scores, int64_t local) {
  const size_t last = std::min(static_cast<size_t>(local), out.size());
  const auto rest = out.first(out.size() - last);
  best_positions(rest, scores.first(scores.size() - last));
  for (size_t i = 0; i < last; ++i) out[rest.size() + i] = static_cast<int32_t>(scores.size() - last + i);
}

}  // namespace sluice::kernels

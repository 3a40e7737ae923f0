#include "sampling/row_math.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace sluice::sampling {
namespace {

// A row is read in groups of kWidth registers of kLanes floats, the register of both NEON and SSE: four
// chains of additions hide each other's latency.
constexpr size_t kLanes = 4;
constexpr size_t kWidth = 4;
constexpr size_t kGroup = kLanes * kWidth;
// Groups add up in float over a block, blocks in double.
constexpr size_t kBlock = 4096;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Lanes [[gnu::vector_size(kLanes * sizeof(float))]] = float;
using IntLanes [[gnu::vector_size(kLanes * sizeof(int32_t))]] = int32_t;

struct Group {
  Lanes part[kWidth];

  static Group filled(float value) {
    Group group;
    for (Lanes& part : group.part) part = value - Lanes{};
    return group;
  }
  static Group load(const float* from) {
    Group group;
    std::memcpy(&group, from, sizeof(group));
    return group;
  }
  // The last entries of a row, filled up with a value that changes nothing.
  static Group load_part(const float* from, size_t count, float filler) {
    Group group = filled(filler);
    std::memcpy(&group, from, count * sizeof(float));
    return group;
  }
};

// The four registers of a group side by side; written out, so that the compiler keeps them in registers.
template <class Function>
[[gnu::always_inline]] inline void for_parts(Function function) {
  static_assert(kWidth == 4);
  function(0), function(1), function(2), function(3);
}

bool any(IntLanes mask) {
  uint64_t halves[2];
  std::memcpy(halves, &mask, sizeof(halves));
  return (halves[0] | halves[1]) != 0;
}

// Whether a value of the group at `from` is at least, or is above, the threshold.
bool any_from(const float* from, float threshold) {
  const Group group = Group::load(from);
  return any((group.part[0] >= threshold) | (group.part[1] >= threshold) | (group.part[2] >= threshold) |
             (group.part[3] >= threshold));
}
bool any_above(const float* from, float threshold) {
  const Group group = Group::load(from);
  return any((group.part[0] > threshold) | (group.part[1] > threshold) | (group.part[2] > threshold) |
             (group.part[3] > threshold));
}

// exp(x) for x <= 0, within 2 units in the last place; 0 below -87, where a float would lose precision.
// 2^n * exp(r) with n the nearest integer to x / ln 2 and a Taylor polynomial in |r| <= ln 2 / 2.
[[gnu::always_inline]] inline Lanes exp_lanes(Lanes x) {
  constexpr float kFloor = -87.0F, kLog2E = 1.44269504F, kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves the integer in the low bits
  constexpr int32_t kRoundBits = 0x4B400000;
  const IntLanes kept = x >= kFloor;
  x = kept ? x : Lanes{};
  const Lanes shifted = x * kLog2E + kRound;
  const Lanes n = shifted - kRound;
  const Lanes r = (x - n * kLn2High) - n * kLn2Low;
  const Lanes r2 = r * r;
  const Lanes low = (r * (1.0F / 6) + 0.5F) * r2 + (r + 1.0F);
  const Lanes high = (r * (1.0F / 5040) + (1.0F / 720)) * r2 + (r * (1.0F / 120) + (1.0F / 24));
  const Lanes p = high * (r2 * r2) + low;
  IntLanes exponent;
  std::memcpy(&exponent, &shifted, sizeof(exponent));
  exponent = (exponent - kRoundBits + 127) << 23;
  Lanes power;
  std::memcpy(&power, &exponent, sizeof(power));
  return kept ? p * power : Lanes{};
}

[[gnu::always_inline]] inline void exp_group(Group& group, ExpScale scale) {
  for_parts([&](size_t i) { group.part[i] = exp_lanes((group.part[i] - scale.offset) * scale.scale); });
}

[[gnu::always_inline]] inline void add(Group& sum, const Group& group) {
  for_parts([&](size_t i) { sum.part[i] += group.part[i]; });
}

double total_of(const Group& sum) {
  double total = 0;
  for (const Lanes& part : sum.part) {
    for (size_t i = 0; i < kLanes; ++i) total += part[i];
  }
  return total;
}

// Calls visit(exponentials, offset, count) for each group and returns the sum. `kSkipMasked`: not for groups of masked
// entries alone.
template <bool kSkipMasked, class Visit>
double for_each_exp(std::span<const float> row, ExpScale scale, Visit visit) {
  const float* const data = row.data();
  double total = 0;
  for (size_t block = 0; block < row.size(); block += kBlock) {
    const size_t end = std::min(row.size(), block + kBlock);
    Group sum = Group::filled(0);
    size_t i = block;
    for (; i + kGroup <= end; i += kGroup) {
      if (kSkipMasked && !any_from(data + i, kLowest)) continue;
      Group group = Group::load(data + i);
      exp_group(group, scale);
      visit(group, i, kGroup);
      add(sum, group);
    }
    if (i < end) {
      Group group = Group::load_part(data + i, end - i, -kInfinity);
      exp_group(group, scale);
      visit(group, i, end - i);
      add(sum, group);
    }
    total += total_of(sum);
  }
  return total;
}

// The largest value, NaN passed over, and whether a value is NaN or +Inf.
struct Extremes {
  float maximum = -kInfinity;
  bool bad = false;
};

Extremes extremes(std::span<const float> row) {
  Group maximum = Group::filled(-kInfinity);
  IntLanes bad[kWidth] = {};
  size_t at = 0;
  for (; at + kGroup <= row.size(); at += kGroup) {
    const Group group = Group::load(row.data() + at);
    for_parts([&](size_t i) {
      bad[i] |= ~(group.part[i] < kInfinity);
      maximum.part[i] = group.part[i] > maximum.part[i] ? group.part[i] : maximum.part[i];
    });
  }
  Extremes result{.bad = any(bad[0] | bad[1] | bad[2] | bad[3])};
  for (const Lanes& part : maximum.part) {
    for (size_t i = 0; i < kLanes; ++i) result.maximum = std::max(result.maximum, part[i]);
  }
  for (; at < row.size(); ++at) {
    result.bad = result.bad || !(row[at] < kInfinity);
    result.maximum = std::max(result.maximum, row[at]);
  }
  return result;
}

// REQUIRES: an entry from `begin` on is NaN or +Inf.
Error bad_row(std::span<const float> row, size_t begin = 0) {
  const auto at = std::find_if(row.begin() + static_cast<ptrdiff_t>(begin), row.end(),
                               [](float x) { return !(x < kInfinity); });
  return Error{ErrorCode::Numerical, fmt::format("the logit of token {1} is {0}", *at, at - row.begin())};
}

constexpr size_t kMaskBits = 32;

// Masks a row word by word and keeps the largest values on the way, so that the row is read once.
struct MaskPass {
  Group before = Group::filled(-kInfinity), after = before;

  // False where one of the word's entries is NaN or +Inf; they are unchanged then.
  [[gnu::always_inline]] bool take(float* at, int32_t allowed) {
    static_assert(kMaskBits == 2 * kGroup);
    Group half[2] = {Group::load(at), Group::load(at + kGroup)};
    IntLanes bad[kWidth] = {};
    for (const Group& group : half) {
      for_parts([&](size_t i) {
        bad[i] |= ~(group.part[i] < kInfinity);
        before.part[i] = group.part[i] > before.part[i] ? group.part[i] : before.part[i];
      });
    }
    if (any(bad[0] | bad[1] | bad[2] | bad[3])) return false;
    if (allowed != -1) {
      const Lanes masked = kMasked - Lanes{};
      IntLanes lane_bit = {1, 2, 4, 8};
      for (Group& group : half) {
        for_parts([&](size_t i) {
          group.part[i] = (allowed & lane_bit) != 0 ? group.part[i] : masked;
          lane_bit <<= kLanes;
        });
      }
      std::memcpy(at, half, sizeof(half));
    }
    for (const Group& group : half) {
      for_parts(
          [&](size_t i) { after.part[i] = group.part[i] > after.part[i] ? group.part[i] : after.part[i]; });
    }
    return true;
  }

  MaskedMaxima maxima() const {
    MaskedMaxima found;
    for (size_t part = 0; part < kWidth; ++part) {
      for (size_t i = 0; i < kLanes; ++i) {
        found.before = std::max(found.before, before.part[part][i]);
        found.after = std::max(found.after, after.part[part][i]);
      }
    }
    return found;
  }
};

}  // namespace

Result<float> row_maximum(std::span<const float> row) {
  const Extremes found = extremes(row);
  if (found.bad) return bad_row(row);
  return found.maximum;
}

Result<MaskedMaxima> keep_allowed(std::span<float> row, std::span<const int32_t> bits) {
  MaskPass pass;
  const size_t whole = std::min(bits.size(), row.size() / kMaskBits);
  for (size_t word = 0; word < whole; ++word) {
    const size_t at = word * kMaskBits;
    if (!pass.take(row.data() + at, bits[word])) return bad_row(row, at);
  }
  MaskedMaxima maxima = pass.maxima();
  for (size_t i = whole * kMaskBits; i < row.size(); ++i) {
    if (!(row[i] < kInfinity)) return bad_row(row, i);
    const bool is_allowed =
        i / kMaskBits < bits.size() && ((bits[i / kMaskBits] >> (i % kMaskBits)) & 1) != 0;
    maxima.before = std::max(maxima.before, row[i]);
    if (!is_allowed) row[i] = kMasked;
    maxima.after = std::max(maxima.after, row[i]);
  }
  return maxima;
}

// Masked entries add nothing: groups of nothing else, of which constrained rows have many, are passed over.
double exp_sum(std::span<const float> row, ExpScale scale) {
  return for_each_exp<true>(row, scale, [](const Group&, size_t, size_t) {});
}

double exp_in_place(std::span<float> row, ExpScale scale) {
  return for_each_exp<false>(row, scale, [row](const Group& values, size_t at, size_t count) {
    std::memcpy(row.data() + at, &values, count * sizeof(float));
  });
}

double log_sum_exp(std::span<const float> row, float maximum) {
  return double{maximum} + std::log(exp_sum(row, {.offset = maximum}));
}

float nth_largest(std::span<const float> row, size_t count, std::vector<float>& buffer) {
  const size_t capacity = std::max<size_t>(2 * count, 256);
  float threshold = -kInfinity;
  buffer.clear();
  const auto shrink = [&] {
    std::nth_element(buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(count - 1), buffer.end(),
                     std::greater<>());
    buffer.resize(count);
    threshold = buffer.back();
  };
  for (size_t i = 0; i < row.size(); i += kGroup) {
    const size_t end = std::min(row.size(), i + kGroup);
    if (end - i == kGroup && !any_above(row.data() + i, threshold)) continue;
    for (size_t j = i; j < end; ++j) {
      if (row[j] > threshold) buffer.push_back(row[j]);
    }
    if (buffer.size() >= capacity) shrink();
  }
  if (buffer.size() < count) return kLowest;
  shrink();
  return threshold;
}

std::vector<ScoredToken> top_tokens(std::span<const float> row, size_t count, std::vector<float>& buffer) {
  std::vector<ScoredToken> top;
  if (count == 0) return top;
  const float floor = nth_largest(row, count, buffer);
  for (size_t i = 0; i < row.size(); i += kGroup) {
    const size_t end = std::min(row.size(), i + kGroup);
    if (end - i == kGroup && !any_from(row.data() + i, floor)) continue;
    for (size_t j = i; j < end; ++j) {
      if (row[j] >= floor) top.push_back({static_cast<Token>(j), row[j]});
    }
  }
  std::stable_sort(top.begin(), top.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  if (top.size() > count) top.resize(count);
  return top;
}

size_t collect_from(std::span<const float> row, float floor, Token* tokens, float* values) {
  size_t count = 0;
  const float* const data = row.data();
  for (size_t i = 0; i < row.size(); i += kGroup) {
    const size_t end = std::min(row.size(), i + kGroup);
    if (end - i == kGroup && !any_from(data + i, floor)) continue;
    for (size_t j = i; j < end; ++j) {
      tokens[count] = static_cast<Token>(j);
      values[count] = data[j];
      count += data[j] >= floor ? 1 : 0;
    }
  }
  return count;
}

}  // namespace sluice::sampling

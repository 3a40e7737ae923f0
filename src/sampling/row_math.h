// Passes over one row of logits. A row is read in fixed groups of lanes and sums are formed in a fixed order,
// so a result depends on the row alone: not on the machine's vector width, the batch or the thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace sluice::sampling {

inline constexpr float kLowest = std::numeric_limits<float>::lowest();
// The logit of a token that may not be sampled.
inline constexpr float kMasked = -std::numeric_limits<float>::infinity();

// Exponentials are taken of (value - offset) * scale; scale is the inverse of a temperature.
struct ExpScale {
  float offset = 0;
  float scale = 1;
};

// The largest value; -Inf for a row of nothing else. An error names the first NaN or +Inf.
Result<float> row_maximum(std::span<const float> row);

// The largest value of a row before and after entries were masked; -Inf for a row of nothing else.
struct MaskedMaxima {
  float before = kMasked;
  float after = kMasked;
};
// Masks the entries whose bit is 0: entry i has bit i % 32 of word i / 32. Entries without a word are masked. An error names
// the first NaN or +Inf of the row as it came, which is of no use then.
Result<MaskedMaxima> keep_allowed(std::span<float> row, std::span<const int32_t> bits);

// Sum of the exponentials of a row; the exponents must not be positive.
double exp_sum(std::span<const float> row, ExpScale scale);

// The same, with each exponential left in place of its value.
double exp_in_place(std::span<float> row, ExpScale scale);

// log of the sum of exp(row), given the row's maximum.
double log_sum_exp(std::span<const float> row, float maximum);

// A token and its logit or log-probability.
struct ScoredToken {
  Token token = 0;
  float score = 0;
  friend bool operator==(const ScoredToken&, const ScoredToken&) = default;
};

// The count-th largest value; the lowest float where fewer values are above -Inf. `buffer` is scratch.
float nth_largest(std::span<const float> row, size_t count, std::vector<float>& buffer);

// The tokens of the `count` largest values above -Inf, best first, the lower token first among equals.
std::vector<ScoredToken> top_tokens(std::span<const float> row, size_t count, std::vector<float>& buffer);

// Writes the tokens and values of all entries that are at least `floor`, in the order of the row, and returns
// their number. Both outputs have room for the whole row.
size_t collect_from(std::span<const float> row, float floor, Token* tokens, float* values);

}  // namespace sluice::sampling

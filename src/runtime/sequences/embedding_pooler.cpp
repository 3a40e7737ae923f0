#include "runtime/sequences/embedding_pooler.h"

#include <cmath>

#include "base/check.h"

namespace sluice::runtime {

void EmbeddingPooler::add(std::span<const float> hidden) {
  SLUICE_CHECK_EQ(hidden.size() % sums_.size(), 0u);
  for (; !hidden.empty(); hidden = hidden.subspan(sums_.size())) {
    for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += double{hidden[i]};
    ++rows_;
  }
}

Result<std::vector<float>> EmbeddingPooler::vector() const {
  SLUICE_CHECK(rows_ > 0);
  double squares = 0;
  for (const double sum : sums_) squares += sum * sum;
  if (!std::isfinite(squares)) return Error{ErrorCode::Numerical, "the hidden states are not finite"};
  double divisor = static_cast<double>(rows_);
  if (pooling_.normalize && squares > 0) divisor = std::sqrt(squares);
  std::vector<float> values;
  values.reserve(sums_.size());
  for (const double sum : sums_) values.push_back(static_cast<float>(sum / divisor));
  return values;
}

}  // namespace sluice::runtime

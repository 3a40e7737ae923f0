#include "runtime/sequences/pooled.h"

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

void PooledSequence::read_prompt(const PromptRows& rows, sampling::Workspace&) {
  pool_.add(rows.hidden);
  read_ = rows.begin + rows.count;
}

std::optional<request::Outcome> PooledSequence::consume(const StepRows&) {
  if (read_ < static_cast<int>(request_->prompt.size())) return std::nullopt;
  Result<std::vector<float>> vector = pool_.vector();
  if (vector) return request::Outcome{{}, request::Pooled{std::move(*vector)}, {}};
  failed_ = vector.error();
  return request::Outcome{{}, vector.error(), {}};
}

}  // namespace sluice::runtime

// Brings the hidden states of a prompt to one vector.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "request/request.h"

namespace sluice::runtime {

// Rows come in order of position and are added one by one, so the result does not depend on how the prompt was cut.
class EmbeddingPooler {
 public:
  EmbeddingPooler(const request::Pooling& pooling, int dim)
      : pooling_(pooling), sums_(static_cast<size_t>(dim)) {}

  // Rows added so far.
  int64_t rows() const { return rows_; }
  // hidden [count, dim]: every position for the mean, otherwise the last one alone.
  void add(std::span<const float> hidden);
  // An error where a value is not finite: it is the request's own. REQUIRES: rows() > 0
  Result<std::vector<float>> vector() const;

 private:
  request::Pooling pooling_;
  std::vector<double> sums_;  // [dim]
  int64_t rows_ = 0;
};

}  // namespace sluice::runtime

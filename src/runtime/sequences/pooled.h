// A sequence that gives one vector, made of the hidden states of its prompt.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "request/request.h"
#include "runtime/sequences/sequence.h"

namespace sluice::runtime {

// Rows come in order of position and are added one by one, so the result does not depend on how the prompt was cut.
class EmbeddingPooler {
 public:
  EmbeddingPooler(const request::Pooling& pooling, int dim)
      : pooling_(pooling), sums_(static_cast<size_t>(dim)) {}

  // hidden [count, dim]: every position for the mean, otherwise the last one alone.
  void add(std::span<const float> hidden);
  // An error where a value is not finite: it is the request's own. REQUIRES: rows were added
  Result<std::vector<float>> vector() const;

 private:
  request::Pooling pooling_;
  std::vector<double> sums_;  // [dim]
  int64_t rows_ = 0;
};

class PooledSequence final : public Sequence {
 public:
  // REQUIRES: the request asks for a vector.
  PooledSequence(std::shared_ptr<const request::Request> request, int dim)
      : request_(std::move(request)), pool_(*request_->pooling(), dim) {}

  std::span<const Token> tokens(size_t) const override { return request_->prompt; }
  const request::Request* request() const override { return request_.get(); }
  StepNeed need(size_t, const request::Work& work) const override {
    return {.hidden = {work.sample_from, work.end}};
  }
  void read_prompt(const PromptRows& rows, sampling::Workspace&) override;
  std::optional<request::Outcome> consume(const StepRows&) override;

 private:
  std::shared_ptr<const request::Request> request_;
  EmbeddingPooler pool_;
  int read_ = 0;  // positions up to here have been read
};

}  // namespace sluice::runtime

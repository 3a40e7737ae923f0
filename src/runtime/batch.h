// The arrays of one forward pass, made from the work of a step.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/backend.h"

namespace sluice::runtime {

class Batch {
 public:
  explicit Batch(int groups) : tables_(static_cast<size_t>(groups)) {}

  // Tokens at positions [begin, begin + tokens.size()) of a sequence; `tables` has its blocks per group, `rope_length` is
  // as in request::Work.
  void add(std::span<const Token> tokens, int begin, std::span<const std::span<const BlockId>> tables,
           int rope_length = 0);

  // Tokens added so far: the row of the next one.
  int rows() const { return static_cast<int>(tokens_.size()); }
  std::span<const Token> tokens() const { return tokens_; }
  // Valid until the next add().
  kernels::RaggedBatch view();

 private:
  std::vector<Token> tokens_;
  std::vector<int32_t> positions_, rope_lengths_, query_begin_{0};
  std::vector<std::vector<std::vector<int32_t>>> tables_;  // per group, per sequence
  std::deque<std::vector<int32_t>> flat_;
  std::vector<kernels::RaggedBatch::BlockTable> views_;
};

}  // namespace sluice::runtime

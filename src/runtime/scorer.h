// Logits of a text at every position, outside the engine: for checks against references and for perplexity.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "models/model.h"
#include "runtime/model_runner.h"

namespace sluice::runtime {

// One sequence at a time, with KV memory of its own for `capacity` positions.
class Scorer {
 public:
  // KV is kept in the back-end's activation type where none is given.
  Scorer(const models::Model& model, int capacity, std::optional<DType> kv_type = std::nullopt);

  // Appends tokens to the sequence; logits of the new positions, row-major [tokens, vocab]. LimitExceeded
  // beyond the capacity, InvalidArgument for a token outside the vocabulary.
  ModelRunner& runner() { return *runner_; }
  Result<std::vector<float>> append(std::span<const Token> tokens);
  // Of the next tokens appended, beside their ids; its spans are valid until then.
  struct Input {
    std::span<const models::EmbeddedRows> embedded;
    std::span<const int32_t> seen, rope_positions;  // as in kernels::RaggedBatch
  };
  void set_input(const Input& input) { input_ = input; }
  // The same, logits of the last position only.
  Result<std::vector<float>> append_last(std::span<const Token> tokens);
  void clear() { length_ = 0; }
  int length() const { return length_; }

 private:
  Result<std::vector<float>> run(std::span<const Token> added, bool all);
  void drop_outgrown(int length);

  const models::Model& model_;
  int capacity_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<std::vector<int32_t>> tables_;  // per group: every block, in order
  std::vector<Token> tokens_;
  Input input_;
  int length_ = 0;
  int rope_length_ = 0;  // as in request::Work; the first tokens appended are the prompt
};

}  // namespace sluice::runtime

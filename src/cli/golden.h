// Reference outputs beside a model: golden.json with prompts and greedy continuations, golden.safetensors
// with logits.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "models/model.h"

namespace sluice::cli {

struct GoldenCase {
  std::vector<Token> prompt;
  std::vector<Token> greedy;
  std::vector<float> logits;  // [prompt, vocab]
};

struct GoldenVerdict {
  double relative_error = 0;  // ‖ours − reference‖ / ‖reference‖
  size_t equal_tokens = 0;    // leading greedy tokens that agree, or tie with what we prefer
  size_t greedy_tokens = 0;
};

Result<std::vector<GoldenCase>> read_golden(const std::string& folder, int vocab);

// With KV of this type. Two logits tie where they differ by no more than `tolerance` of the root mean square of their row:
// either may be the larger, and the reference's token is followed.
Result<GoldenVerdict> judge(const models::Model& model, const GoldenCase& golden, DType kv_type,
                            double tolerance);

// The reference's token where it is the largest logit of the row or ties with it, else the largest.
Token followed_token(std::span<const float> logits, Token reference, double tolerance);

}  // namespace sluice::cli

// How a device samples one token from a row of logits, as plain data that it can read. The tokens are those of
// sampling::TokenSampler but for sums rounded in another order.
//
// With a temperature the row's weights are exp((logit - largest) / temperature). Kept are the logits of at least
// largest + floor, of those the top_k largest (all of equal logits), and of those the fewest, largest first and lower
// tokens first among equals, whose weights sum to at least top_p of what is left. The token is the first, in the order
// of tokens, at which the sum of the kept weights exceeds uniform times their total.
//
// A row may have edits, which change its logits before all that: a bias is added; the logit of a token seen before is
// divided by `repetition` where positive, else multiplied by it; and that of a token in the output falls by `frequency`
// for each of its occurrences and by `presence` once. A row may have a mask, which comes before its edits: tokens whose bit
// is not set cannot be sampled. Log-probabilities are those of the logits as they came.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// What a row's request does to one logit.
struct LogitAdjustment {
  static constexpr uint32_t kInPrompt = 1, kEnds = 2;

  int32_t token = 0;
  float bias = 0;      // -Inf: the token cannot be sampled
  int32_t output = 0;  // its occurrences in the output
  uint32_t marks = 0;  // kInPrompt: seen before, in the prompt; kEnds: it ends the sequence
};

struct SampleArgs {
  double uniform = 0;             // in [0, 1)
  float inverse_temperature = 0;  // 0: the largest, the lowest token of equals; nothing below matters then
  float floor = 0;                // at most 0; -Inf: none
  float top_p = 1;                // 1: all
  int32_t top_k = 0;              // 0: all
  int32_t slot = 0;
  int32_t logprobs =
      -1;  // the likeliest to report with their log-probabilities; -1: no log-probabilities at all
  int32_t first_edit = 0, edits = 0;  // which of the step's edits are this row's; their tokens ascend
  int32_t follows = 0;     // 1: the token in `slot` is in the output too, once more than the edits say
  int32_t masks_ends = 0;  // 1: tokens that end the sequence cannot be sampled
  float repetition = 1, frequency = 0, presence = 0;
  int32_t mask = -1;  // which of the step's masks is this row's; -1: none
};

// Words of a mask over `vocab` tokens: token i has bit i % 32 of word i / 32.
constexpr int64_t mask_words(int64_t vocab) {
  return (vocab + 31) / 32;
}

struct SampledToken {
  enum Status : int32_t {
    Sampled,
    NotFinite,  // NaN or +Inf in the row
    Nothing,    // -Inf alone
    Excluded    // -Inf alone once masked and edited
  };
  static constexpr int kTop = 20;

  int32_t token = 0;
  int32_t status = Sampled;
  float logprob = 0;
  int32_t top = 0;  // entries below, in no order
  int32_t top_tokens[kTop] = {};
  float top_logprobs[kTop] = {};
};

}  // namespace sluice::kernels

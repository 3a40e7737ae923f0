// How one token is drawn from a row of logits, as plain data that a device can read; and the meaning of it in plain
// loops.
//
// With a temperature the row's weights are exp((logit - largest) / temperature). Kept are the logits of at least
// largest + floor, of those the top_k largest (all of equal logits), and of those the fewest, largest first and lower
// tokens first among equals, whose weights sum to at least top_p of what is left. The token is the first, in the order
// of tokens, at which the sum of the kept weights exceeds uniform times their total.
#pragma once

#include <cstdint>
#include <span>

namespace sluice::kernels {

struct DrawRow {
  double uniform = 0;             // in [0, 1)
  float inverse_temperature = 0;  // 0: the largest, the lowest token of equals; nothing below matters then
  float floor = 0;                // at most 0; -Inf: none
  float top_p = 1;                // 1: all
  int32_t top_k = 0;              // 0: all
  int32_t slot = 0;
  int32_t logprobs =
      -1;  // the likeliest to report with their log-probabilities; -1: no log-probabilities at all
};

struct DrawnToken {
  enum Status : int32_t {
    Drawn,
    NotFinite,
    Nothing
  };  // NotFinite: NaN or +Inf in the row; Nothing: -Inf alone
  static constexpr int kTop = 20;

  int32_t token = 0;
  int32_t status = Drawn;
  float logprob = 0;
  int32_t top = 0;  // entries below, in no order
  int32_t top_tokens[kTop] = {};
  float top_logprobs[kTop] = {};
};

DrawnToken draw_token(std::span<const float> logits, const DrawRow& row);

}  // namespace sluice::kernels

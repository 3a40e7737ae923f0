// From processed logits to the distribution that a token is sampled from. In vLLM's order, with typical-p,
// which vLLM does not have, at the end as in transformers:
//
//   temperature > min-p > top-k > top-p > typical-p
//
// Each filter sees the probabilities renormalised over what the one before it left, and leaves at least one
// token. Only the tokens near the top are sorted out of the row; no filter sorts the whole vocabulary.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "request/sampling_params.h"

namespace sluice::sampling {

// Scratch of one thread, sized by use; nothing in it outlives a call, except that a Distribution looks into
// it.
struct Workspace {
  std::vector<Token> tokens;
  std::vector<float> values;   // the logits of the tokens
  std::vector<float> weights;  // exp((value - maximum) / temperature)
  std::vector<float> keys;     // what typical-p orders them by
  std::vector<float> raw;      // the row before the processors
  std::vector<float> buffer;   // of selections
  std::vector<int32_t> mask;   // of a grammar, a bit for each token
};

// Unnormalised probabilities of the tokens that can be sampled, tokens ascending.
struct Distribution {
  std::span<const Token> tokens;
  std::span<const float> weights;
  double total = 0;
};

// Temperatures below this are greedy, as in vLLM: their quotients would leave the range of a float.
constexpr double kGreedyTemperature = 1e-5;

// `maximum` is the largest of the logits, which is finite; a greedy temperature gives one token, the lowest
// of the likeliest.
Distribution filter(std::span<const float> logits, float maximum, const request::Sampling& sampling,
                    Workspace& workspace);

// The token at share `uniform` in [0, 1) of the total weight.
Token pick(const Distribution& distribution, double uniform);

}  // namespace sluice::sampling

// What a compression asks of a running model: how likely tokens are, and texts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "compress/compressor.h"
#include "request/constraint.h"

namespace sluice::compress {

struct ScoredSequence {
  std::vector<Token> tokens;
  int from = 1;                         // the first token whose log-probability is wanted, at least 1
  std::vector<int32_t> positions = {};  // of the tokens; empty: their indices
};

// Log-probabilities of each sequence's tokens [from, end), given those before them. All sequences run as one batch, as far
// as the engine has room.
Result<std::vector<std::vector<float>>> score(const Model& model, std::vector<ScoredSequence> sequences,
                                              const Caller& caller);

struct Writing {
  std::vector<Token> prompt;
  int max_tokens = 256;
  std::optional<request::Constraint> constraint;
  std::vector<int32_t> positions = {};  // of the prompt's tokens; empty: their indices
};
struct Written {
  std::string text;
  bool ended = true;  // by itself, not by max_tokens
};
// The likeliest continuation.
Result<Written> write(const Model& model, Writing writing, const Caller& caller);

// The weights of request::Outcome::prompt_attention, of so many tokens that the model writes, whatever they are.
Result<std::vector<float>> attend(const Model& model, std::vector<Token> prompt, int tokens,
                                  const Caller& caller);

}  // namespace sluice::compress

// Speculative prefill: the attention of a small model's look-ahead says which tokens of a prompt are run, at their positions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "compress/compressor.h"

namespace sluice::compress {

// A prompt's tokens by what may become of them.
struct TextTokens {
  std::vector<bool> in_text;  // of one of the texts; all others stay
  std::vector<bool> fixed;    // stays: outside of the texts, marked, asking, or protected as Protection says
};

// Finds the texts, in their order, in what the tokens spell. One that is not found as it is, nor without white space around
// it, stays whole. REQUIRES: valid UTF-8, marks within the texts.
TextTokens find_texts(const tokenizer::Tokenizer& tokenizer, std::span<const Token> tokens,
                      std::span<const Text> texts);

// Chunks of kChunk tokens are added to what is fixed, those whose tokens have the largest mean weight first, while the tokens
// of the texts that stay are within the budget. A token's weight is the mean over its neighbourhood. Ascending indices.
// REQUIRES: a weight per token
std::vector<int32_t> choose_chunks(const TextTokens& tokens, std::span<const float> weights, int budget);
inline constexpr int kChunk = 32;  // tokens

// How much a model that is about to answer attends to each token of the prompt.
Result<std::vector<float>> look_ahead(const Model& model, std::span<const Token> prompt,
                                      const Caller& caller);

// The kept tokens of the texts, with an ellipsis for what is left out.
std::string shown_text(const tokenizer::Tokenizer& tokenizer, std::span<const Token> tokens,
                       const TextTokens& parts, std::span<const int32_t> kept);

// Whether ids mean the same to both.
Status check_same_vocabulary(const tokenizer::Tokenizer& scorer, const tokenizer::Tokenizer& target);

}  // namespace sluice::compress

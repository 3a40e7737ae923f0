#include "llm/draft_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/quote.h"

namespace sluice::llm {

Status check_same_tokens(const tokenizer::Tokenizer& draft, const tokenizer::Tokenizer& model) {
  const auto refused = [](std::string message) {
    return Error{ErrorCode::InvalidArgument, std::move(message), "speculate"};
  };
  const int64_t both = std::max(draft.vocab_size(), model.vocab_size());
  for (Token token = 0; token < both; ++token) {
    if (draft.piece_bytes(token) == model.piece_bytes(token) && draft.kind(token) == model.kind(token))
      continue;
    return refused(
        fmt::format("the draft model's token {} is {}, the model's is {}: they need one vocabulary", token,
                    formats::quote(draft.spelling(token)), formats::quote(model.spelling(token))));
  }
  return {};
}

}  // namespace sluice::llm

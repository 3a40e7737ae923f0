// Whether the tokens of a draft model mean what the model's do.
#pragma once

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace sluice::llm {

// An error names the first difference.
Status check_same_tokens(const tokenizer::Tokenizer& draft, const tokenizer::Tokenizer& model);

}  // namespace sluice::llm

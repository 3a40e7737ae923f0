// The pre-tokenizers that GGUF files name in tokenizer.ggml.pre.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/pre_tokenizer.h"

namespace sluice::tokenizer {

struct NamedPreTokenizer {
  std::vector<PreTokenizerStep> steps;
  bool maps_bytes = false;    // the steps turn bytes into the byte-level alphabet
  bool has_raw_text = false;  // the vocabulary is plain UTF-8, with U+2581 for spaces
  bool ignores_merges = false;
  bool adds_bos = false;         // unless the file says otherwise
  bool may_lack_merges = false;  // then the order of the vocabulary gives the ranks
};

// Errors: an unknown name.
Result<NamedPreTokenizer> find_pre_tokenizer(std::string_view name);

// One name for each different way of cutting that the known names stand for.
std::vector<std::string_view> distinct_pre_tokenizers();

// A split at the matches of a pattern of tokenizer.json. The patterns that group digits from the right take
// quadratic time as they are written and have steps of their own.
Result<PreTokenizerStep> make_split(std::string_view pattern, SplitBehavior behavior, bool is_inverted);

// The cut of GPT-2 that byte-level pre-tokenizers make.
inline constexpr std::string_view byte_level_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// BERT: white space goes, each punctuation mark is a word.
struct NamedSplit {
  std::string_view pattern;
  SplitBehavior behavior;
};
inline constexpr std::string_view punctuation_pattern = R"([\p{P}!-/:-@\[-`{-~])";
inline constexpr NamedSplit bert_splits[] = {{R"(\s)", SplitBehavior::Removed},
                                             {punctuation_pattern, SplitBehavior::Isolated}};

}  // namespace sluice::tokenizer

// The parts of tokenizer.json, each read into the steps that carry it out. Every function adds to its last argument;
// `value` may be null. Errors: fields of a wrong kind (Corrupt), parts that are not known (Unsupported).
#pragma once

#include <vector>

#include "base/json.h"
#include "tokenizer/tokenizer_data.h"

namespace sluice::tokenizer {

Status parse_normalizer(const json::value& value, std::vector<NormalizerStep>& steps);
Status parse_pre_tokenizer(const json::value& value, std::vector<PreTokenizerStep>& steps);
Status parse_decoder(const json::value& value, TokenDecoder& decoder);
// Prefix and suffix of a single text.
Status parse_post_processor(const json::value& value, SpecialTokens& special);
// The vocabulary and the model. `added` gives the ids and spellings of added tokens; the normalizer and the
// pre-tokenizer must be in `data` already. Takes the step from bytes to characters off the end of the pre-tokenizer
// where the model can work on bytes.
Status parse_model(const json::value& value, const std::vector<AddedToken>& added, TokenizerData& data);

// The text or pattern of {"String": …} or {"Regex": …}.
Result<unicode::Pattern> parse_pattern(const json::value* value, std::string_view what);
Result<SplitBehavior> parse_behavior(std::string_view name);

inline constexpr int deepest_sequence = 16;

}  // namespace sluice::tokenizer

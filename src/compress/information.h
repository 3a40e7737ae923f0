// How much parts of a text say: under a model, in nats.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "compress/compressor.h"
#include "compress/selection.h"

namespace sluice::compress {

// A text with the number of tokens of each word; those of the target.
Result<MeasuredText> measure(const tokenizer::Tokenizer& tokenizer, const Text& text, Interrupt* interrupt);

// The mean log-probability of the question's tokens behind each sentence: the higher, the more the sentence says about it.
// Short sentences that follow each other are scored together.
Result<std::vector<double>> question_scores(const Model& model, const MeasuredText& text,
                                            std::string_view question, const Caller& caller);

// The self-information of each kept word, given the kept words before it; 0 of words that are not kept.
Result<std::vector<double>> word_information(const Model& model, const MeasuredText& text, const Kept& kept,
                                             const Caller& caller);

}  // namespace sluice::compress

// The fields that several operations share.
#pragma once

#include <span>

#include "api/fields/field_table.h"

namespace sluice::api {

std::span<const Field> model_field();
// Who guesses the next tokens. Of every dialect.
std::span<const Field> speculate_field();
// How tokens are chosen, under OpenAI's, vLLM's and transformers' names.
std::span<const Field> sampling_fields();
// Log-probabilities as a count (completions), as a switch with a count beside it (chats), or as either (job files).
std::span<const Field> count_logprobs_fields();
std::span<const Field> switch_logprobs_fields();
std::span<const Field> job_logprobs_fields();
// Streams, identifiers and what clients of OpenAI, vLLM and llama.cpp send along; also what is refused.
std::span<const Field> envelope_fields();

}  // namespace sluice::api

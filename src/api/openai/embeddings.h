// POST /v1/embeddings, and what other dialects' embeddings share with it.
#pragma once

#include <vector>

#include "api/core/generation.h"
#include "api/core/service.h"
#include "api/fields/field_table.h"

namespace sluice::api {

const RequestSchema& embedding_schema();
Reply embeddings(const Call& call);

// What read_prompts() takes, under "input". Used as a field's read().
Status read_embedding_input(const json::value& value, ParsedRequest& parsed);
// One submission per prompt that asks for a vector.
Reply embed(const Call& call, ParsedRequest parsed, MakeWriter make_writer);
// The first `dimensions` numbers, brought back to length 1; all of them where nothing is asked for.
std::vector<float> shorten_embedding(std::vector<float> values, const ParsedRequest& parsed);
json::array embedding_json(const std::vector<float>& values);

}  // namespace sluice::api

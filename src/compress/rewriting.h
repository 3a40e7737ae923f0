// Texts that a model writes in the place of others: summaries, and facts in the form of a schema.
#pragma once

#include <string>

#include "base/result.h"
#include "compress/compressor.h"

namespace sluice::compress {

// The summary, the marked spans that it does not hold byte by byte, and the question. A text that does not fit into the
// context is summarised in parts.
Result<std::string> summarize(const Model& model, const Task& task, const Text& text, int budget);

// JSON of the schema, the marked spans and the question. LimitExceeded where the JSON does not end within the budget, or
// text and JSON do not fit into the context.
Result<std::string> extract(const Model& model, const Task& task, const Text& text, int budget);

}  // namespace sluice::compress

// Sessions for somebody at a terminal: how far the weights are is shown there.
#pragma once

#include <memory>
#include <string>

#include "compress/compressor.h"
#include "llm/session.h"
#include "llm/session_options.h"

namespace sluice::cli {

Result<std::unique_ptr<llm::Session>> open_session(llm::SessionOptions options);

// REQUIRES: session.has_tokenizer(), and that it outlives the result.
compress::Model compress_model(llm::Session& session);

// The small model of --compressor, beside a model opened with `target`: it keeps nothing, and reads prompts as far as it was
// made for.
Result<std::unique_ptr<llm::Session>> open_compressor(const std::string& model,
                                                      const llm::SessionOptions& target);

}  // namespace sluice::cli

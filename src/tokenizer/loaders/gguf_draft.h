// The parts of a tokenizer while they are read from GGUF metadata.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "formats/gguf/gguf.h"
#include "tokenizer/tokenizer_data.h"

namespace sluice::tokenizer {

struct GgufDraft {
  const formats::GgufMetadata& metadata;
  TokenizerData& data;         // vocabulary and special ids are read before the model
  std::vector<double> scores;  // [vocab], or empty
  std::optional<Token> separator;
  bool adds_bos = false, adds_eos = false;  // unless the file says otherwise; the model sets them
  bool adds_separator = false;
};

Result<bool> read_flag(const formats::GgufMetadata& metadata, std::string_view key, bool otherwise);

// Fills the normalizer, the pre-tokenizer, the model and the decoder for a value of tokenizer.ggml.model.
Status load_gguf_model(GgufDraft& draft, std::string_view model);

}  // namespace sluice::tokenizer

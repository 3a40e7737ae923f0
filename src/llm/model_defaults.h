// What a model's makers sample it with.
#pragma once

#include "formats/gguf/gguf.h"
#include "models/model.h"
#include "request/sampling_params.h"

namespace sluice::llm {

// From generation_config.json of a folder (do_sample false: greedy), from general.sampling.* of a GGUF file, else what
// the makers of known models recommend elsewhere. A value that cannot be used is left out with a warning: the model
// still runs.
request::SamplingDefaults model_defaults(const models::ModelFiles& files);

// The readers by themselves.
Result<request::SamplingDefaults> read_generation_config(const std::string& path);
Result<request::SamplingDefaults> read_gguf_sampling(const formats::GgufMetadata& metadata);

}  // namespace sluice::llm

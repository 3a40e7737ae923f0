// safetensors: one file, or the shards that model.safetensors.index.json lists.
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "formats/tensor_store.h"

namespace sluice::formats {

struct Safetensors {
  TensorStore tensors;
  std::map<std::string, std::string> metadata;  // __metadata__ of the (first) file
};

// `path` is a .safetensors file, a .safetensors.index.json, or a folder that holds model.safetensors or
// model.safetensors.index.json. Every rule of the format is checked before a byte of tensor data is touched.
Result<Safetensors> open_safetensors(const std::string& path);

// The header rules alone, on bytes in memory (for tests and fuzzing). Views point into `file`.
Result<Safetensors> parse_safetensors(std::string_view file, std::string_view what);

// The JSON of an index: tensor name to the name of the shard that holds it. Shards are plain file names.
Result<std::map<std::string, std::string>> parse_safetensors_index(std::string_view text,
                                                                   std::string_view what);

}  // namespace sluice::formats

// What is known of a model without its weights.
#pragma once

#include <string>

#include "models/model.h"

namespace sluice::models {

// As open_model(), but `path` may also be a config.json, or a folder with nothing else. `tensors` is then empty, and parts
// that only a file of weights reveals count as absent.
Result<ModelFiles> open_outline(const std::string& path);

}  // namespace sluice::models

// Whether two processes have the same model: what their KV blocks have in common is worth nothing otherwise.
#pragma once

#include <string>

#include "models/model.h"

namespace sluice::models {

// 32 hexadecimal digits over the architecture, the names, types and shapes of all tensors and a few bytes of each: it tells
// models and their variants apart by accident, not by intent, and reads no more than some kilobytes of a tensor.
std::string fingerprint(const ModelFiles& files);

}  // namespace sluice::models

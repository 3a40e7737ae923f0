// Whether two processes have the same model: what their KV blocks have in common is worth nothing otherwise.
#pragma once

#include <string>

#include "models/model.h"

namespace sluice::models {

// 32 hexadecimal digits over the architecture, the names, types and shapes of all tensors and three kilobytes of each: they
// differ for another model or variant, but a file may be forged to have those of another.
std::string fingerprint(const ModelFiles& files);

}  // namespace sluice::models

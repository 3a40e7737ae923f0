// Small files, read whole.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace sluice {

// The bytes of a regular file, or of a link to one. What is none (a pipe, a device, a folder) is refused without waiting
// for it. Errors name the path; ErrorCode::NotFound where there is nothing.
Result<std::string> read_regular_file(const std::string& path, size_t limit);

}  // namespace sluice

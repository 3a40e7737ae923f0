// Texts that a user hands to a verb.
#pragma once

#include <string>

#include "base/result.h"

namespace sluice::cli {

constexpr size_t kMostInputBytes = size_t{64} << 20;

// All bytes of a file or a pipe, or of standard input where the path is "-". Folders, and more than kMostInputBytes,
// are errors that name the path.
Result<std::string> read_input(const std::string& path);

}  // namespace sluice::cli

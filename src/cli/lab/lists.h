// Numbers with commas between them.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace sluice::cli {

// "512" or "0,4096", each from `least` to 2^20; empty: none. Errors name the option.
Result<std::vector<int>> read_list(const std::string& text, const char* option, int least);

}  // namespace sluice::cli

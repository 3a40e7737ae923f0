// Numbers for people.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::cli {

std::string bytes_text(int64_t bytes);  // "98.4 MB", decimal
std::string count_text(int64_t count);  // "134.5 M"

}  // namespace sluice::cli

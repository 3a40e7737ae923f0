// safetensors files that break one rule each, and their valid twins. They are also the seeds of the fuzz
// target.
#pragma once

#include <vector>

#include "tests/formats/files.h"

namespace sluice::formats {

// The length prefix, the header as given, the data.
std::string safetensors_file(std::string_view header, std::string_view data);
std::string rich_safetensors();

std::vector<Case> safetensors_prefix_cases();
std::vector<Case> safetensors_header_cases();
std::vector<Case> safetensors_entry_cases();
std::vector<Case> safetensors_layout_cases();
std::vector<Case> safetensors_index_cases();

}  // namespace sluice::formats

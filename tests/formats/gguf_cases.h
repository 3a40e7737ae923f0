// GGUF files that break one rule each, and their valid twins. They are also the seeds of the fuzz target.
#pragma once

#include <vector>

#include "tests/formats/files.h"
#include "tests/formats/gguf_writer.h"

namespace sluice::formats {

// Every kind of value, two tensors of plain and block type and one that no kernel reads.
GgufWriter rich_gguf();

std::vector<Case> gguf_header_cases();
std::vector<Case> gguf_pair_cases();
std::vector<Case> gguf_tensor_cases();
std::vector<Case> gguf_data_cases();

}  // namespace sluice::formats

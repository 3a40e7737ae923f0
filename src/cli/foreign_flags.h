// Flags as users of llama.cpp and vLLM type them.
#pragma once

#include <string>
#include <vector>

#include "base/options.h"
#include "base/result.h"

namespace sluice::cli {

// The words behind a verb that takes these options, with foreign flags that mean the same as one of the options in our
// spelling. One that means something else, or that has no counterpart, is an error whose sentence says what there is
// instead. What follows a flag that takes a value, or "--", is nobody's flag.
Result<std::vector<std::string>> translate_flags(std::vector<std::string> words, const OptionSet& options);

}  // namespace sluice::cli

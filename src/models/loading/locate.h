// Names of tensors in the files of one family, which differ in their prefixes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensor_store.h"

namespace sluice::models {

// A stem under all prefixes that exports of one family differ in: as it is, with the decoder's name left out, and beside a
// vision tower.
std::vector<std::string> spellings(const std::string& stem);

// The stored name of a stem with a suffix, under any of the prefixes that exports of one family differ in.
std::optional<std::string> locate_tensor(const formats::TensorStore& store, const std::string& stem,
                                         std::string_view suffix);

}  // namespace sluice::models

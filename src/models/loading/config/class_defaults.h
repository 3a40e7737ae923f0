// What keys mean that a config leaves out.
#pragma once

#include <string_view>

#include "base/json.h"

namespace sluice::models {

// Releases 4 of transformers left out of a text_config what its class has by default (Gemma 3's say no number of heads,
// LLaVA's no width): sets those keys, of the class of this model_type, where it is known. Keys that are there stand, null
// too. `config` has the common names of keys.
void assume_class_defaults(json::object& config, std::string_view model_type);

}  // namespace sluice::models

// Whether a step that came from outside agrees with itself.
#pragma once

#include <string>

#include "base/result.h"
#include "request/step.h"

namespace sluice::request {

// What a step that cannot be read, or contradicts itself, is answered with.
Error corrupt_step(const std::string& message);

// The error names the first thing that contradicts another, or lies outside of its limits. What the ids stand for is not
// known here.
Status check_step(const Step& step);

}  // namespace sluice::request

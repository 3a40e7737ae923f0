// A step as bytes, to be sent to another rank, recorded and replayed. Numbers are little-endian; equal steps give equal
// bytes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "request/step.h"

namespace sluice::request {

std::vector<std::byte> serialize(const Step& step);

// Memory is bounded by a multiple of bytes.size(). What is returned has sound positions, tables, moves and requests, as far
// as the step alone can tell; that its sequences and blocks exist is for the executor to know. The error names the field.
Result<Step> parse_step(std::span<const std::byte> bytes);

}  // namespace sluice::request

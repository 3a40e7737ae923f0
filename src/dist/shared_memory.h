// Memory that the ranks of one host have in common.
#pragma once

#include <cstddef>
#include <memory>

#include "dist/communicator.h"

namespace sluice::dist {

// The same zeroed memory on all ranks, which all call it with the same size; null on all of them where they are not of one
// host, or where that has no such memory left. Nothing of it stays behind when they end, however they do. Throws GroupFailure.
std::shared_ptr<std::byte> share_memory(Communicator& ranks, size_t bytes);

}  // namespace sluice::dist

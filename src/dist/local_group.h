// Ranks that are threads of one process: for tests.
#pragma once

#include <memory>
#include <vector>

#include "dist/communicator.h"

namespace sluice::dist {

// A communicator per rank, each for one thread. When one is destroyed, the others fail where they wait for it.
std::vector<std::unique_ptr<Communicator>> make_local_group(int size);

}  // namespace sluice::dist

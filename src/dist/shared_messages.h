// Messages between ranks of one host through shared memory: they arrive while sender and receiver compute, where a transport
// like MPI moves long ones only while both of them call it.
#pragma once

#include <memory>

#include "dist/communicator.h"

namespace sluice::dist {

// A communicator of the same ranks, which all call it, that sends through shared memory; `ranks` itself where they are of
// several hosts, are many, or have no such memory. Which ranks are lost is what `ranks` knows. Throws GroupFailure.
std::unique_ptr<Communicator> through_shared_memory(std::unique_ptr<Communicator> ranks);

}  // namespace sluice::dist

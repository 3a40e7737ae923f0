// The ranks that mpirun has started, through libsluice_mpi.so, which is loaded here and nowhere else.
#pragma once

#include <memory>

#include "base/result.h"
#include "dist/communicator.h"
#include "dist/heartbeat.h"

namespace sluice::dist {

// Joins them; all ranks call it, once in a process, and the thread that calls it destroys the result. Unavailable where
// the plugin or Open MPI is missing, with the Debian package that has it; InvalidArgument where there are not `size` ranks.
// A rank that ends or hangs fails the calls of the others. Ranks of one host send by shared memory.
Result<std::unique_ptr<Communicator>> join_mpi(int size, HeartbeatTiming timing);

}  // namespace sluice::dist

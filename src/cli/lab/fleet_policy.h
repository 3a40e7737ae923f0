// Who of the replicas of a simulated fleet gets a request: as `sluice route` has it, as HAProxy's consistent hashing does, or by
// turns.
#pragma once

#include <memory>

#include "lab/sim/simulate.h"

namespace sluice::cli {

enum class FleetPolicy { Fewest, RoundRobin, Hash, Prefix };

// Null: the replica with the fewest requests.
std::unique_ptr<lab::ReplicaPolicy> make_fleet_policy(FleetPolicy policy);

}  // namespace sluice::cli

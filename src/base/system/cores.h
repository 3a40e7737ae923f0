// How many threads to compute with where nobody says it.
#pragma once

#include <string>
#include <vector>

namespace sluice {

// Where the system describes itself.
struct CoreSources {
  std::string cpus = "/sys/devices/system/cpu";
  std::string nodes = "/sys/devices/system/node";
  std::string cgroups = "/sys/fs/cgroup";
  std::string own_cgroup = "/proc/self/cgroup";
};

struct ComputeCores {
  int threads = 1;
  std::vector<int>
      stay_on;  // processors of the NUMA node that the threads are to stay on; empty: there is one node
};

// One thread for each physical core among the processors `allowed`, of several NUMA nodes those of the one with the most, and
// no more than the quota of the process's cgroup and of those around it. What a source does not say limits nothing.
ComputeCores compute_cores(const std::vector<int>& allowed, const CoreSources& sources = {});
// Of the calling thread's affinity mask.
ComputeCores compute_cores();

// Lets the calling thread run on these processors alone; without effect where the system refuses.
void stay_on(const std::vector<int>& processors);

}  // namespace sluice

// The CPU back-end.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/backend.h"

namespace sluice::kernels {

struct CpuOptions {
  int threads = 0;     // 0: as compute_cores() says
  std::string isa;     // name of a level; empty: the best one
  bool repack = true;  // prepare() makes panels of weights; else they are read as they lie in the file
};

// Fails where `isa` is unknown or not on this machine. Operations are called by one thread at a time.
Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options);

// Names for CpuOptions::isa that work on this machine, the best last.
std::vector<std::string> available_isa_names();

}  // namespace sluice::kernels

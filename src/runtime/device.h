// Which back-end a user asked for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/result.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda.h"

namespace sluice::runtime {

struct DeviceOptions {
  std::string device = "auto";  // auto, cpu, ref, cuda
  std::string isa = "auto";     // cpu only: a level of available_isas()
  int threads = 0;              // cpu only; 0: all cores this process may use
  bool repack = true;           // cpu only: weights are copied into the order that the kernels read fastest
  bool fp8 = false;             // cuda only: plain matrices are kept in fp8
  kernels::Activations activations = kernels::Activations::Auto;  // cuda only
  bool tuning = true;          // cuda only: algorithms of products are timed at start
  bool deterministic = false;  // cuda only: the same bits in any batch; the CPU's always are

  void declare(OptionSet& options);
};

Result<std::shared_ptr<kernels::Backend>> make_backend(const DeviceOptions& options);

// For --version: back-ends with their instruction sets, or their GPUs.
std::vector<std::string> describe_devices();

}  // namespace sluice::runtime

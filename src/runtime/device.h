// Which back-end a user asked for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/options.h"
#include "base/result.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda.h"

namespace sluice::runtime {

// The first GPU where there is one and this build can use it, else the CPU.
struct AutoDevice {};
struct CpuDevice {};
struct RefDevice {};  // plain loops
struct CudaDevice {
  std::optional<int> index;  // absent: the first, or that of DeviceOptions::place
};
using DeviceChoice = std::variant<AutoDevice, CpuDevice, RefDevice, CudaDevice>;

// auto, cpu, ref, cuda (the first), cuda:N. Whether the machine has such a device is make_backend's to say.
Result<DeviceChoice> parse_device(std::string_view text);

struct DeviceOptions {
  std::string device = "auto";  // as parse_device() takes it
  std::string isa = "auto";     // cpu only: a level of available_isas()
  int threads = 0;              // cpu only; 0: as compute_cores() says
  bool repack = true;           // cpu only: weights are copied into the order that the kernels read fastest
  bool fp8 = false;             // cuda only: plain matrices are kept in fp8
  kernels::Activations activations = kernels::Activations::Auto;  // cuda only
  bool tuning = true;       // cuda only: algorithms of GEMMs are timed at start
  bool whole_stack = true;  // cuda only: all layers in one launch, where a kernel has that
  int cuda_arch = 0;  // cuda only, for development: kernels and limits of that architecture; 0: the GPU's own
  bool deterministic = false;  // cuda only: the same bits in any batch; the CPU's always are
  int place =
      0;  // among the processes of this machine that compute together: 'cuda' is the GPU of that index,
          // counted round

  void declare(OptionSet& options);
};

Result<std::shared_ptr<kernels::Backend>> make_backend(const DeviceOptions& options);

// For --version: back-ends with their instruction sets, or their GPUs.
std::vector<std::string> describe_devices();

}  // namespace sluice::runtime

// What the driver says about a GPU: NVML, loaded at run time where it is installed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"

namespace sluice {

struct GpuStats {
  std::string name;
  double utilization = 0;                      // share of the last second or so in which a kernel ran
  uint64_t memory_used = 0, memory_total = 0;  // bytes; of all processes
  double power_w = 0, temperature_c = 0;       // 0 where the GPU does not say
};

// Of any thread.
class GpuMonitor {
 public:
  virtual ~GpuMonitor() = default;
  // Unavailable where there is no driver or no such GPU.
  static Result<std::shared_ptr<GpuMonitor>> open(unsigned gpu);
  // At most one question to the driver in 100 ms; nullopt once it does not answer.
  virtual std::optional<GpuStats> read() = 0;
};

}  // namespace sluice

// Measures a device that works beside the host: what it reads and multiplies, how long its GEMMs take by type and rows, what
// a launch costs in a replayed step, and how fast its link to the host is.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "lab/plan/machine.h"

namespace sluice::lab {

struct DeviceCalibrateOptions {
  std::vector<DType> types{DType::BF16, DType::Q8_0, DType::Q4_K};
  std::vector<int> rows{1, 8, 64, 512, 4096};
  int64_t width = 4096;  // of the square matrices
  int64_t matrix_bytes = 256 << 20;
  int64_t copied_bytes = 1 << 30;  // by which memory is measured
  int64_t linked_bytes = 256 << 20;
  int repeat = 3;  // the fastest counts: nobody else uses the device
};

// REQUIRES: backend.async_device() is not null. `progress` names what is being measured.
Machine calibrate_device(kernels::Backend& backend, const DeviceCalibrateOptions& options,
                         const std::function<void(const std::string&)>& progress);

}  // namespace sluice::lab

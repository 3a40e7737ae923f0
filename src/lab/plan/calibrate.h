// Measures the processor that this program runs on: what it reads and multiplies at most, how long its GEMMs take by type
// and rows, its attention, and what an operation costs beside its work.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "lab/plan/machine.h"
#include "lab/stopwatch.h"

namespace sluice::lab {

struct CalibrateOptions {
  int threads = 1;
  std::vector<DType> types{DType::BF16, DType::F16,  DType::Q8_0, DType::Q4_0,
                           DType::Q4_1, DType::Q4_K, DType::Q6_K};
  std::vector<int> rows{1, 4, 16, 64, 256, 512};
  TimeSource time = TimeSource::Wall;
  int repeat = 2;                   // the best counts, since what else the machine does only adds
  int64_t matrix_bytes = 64 << 20;  // of the matrices that are multiplied in turn: more than the caches hold
};

// `progress` names what is being measured.
Machine calibrate(kernels::Backend& backend, const CalibrateOptions& options,
                  const std::function<void(const std::string&)>& progress);

}  // namespace sluice::lab

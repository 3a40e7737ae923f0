// What kernels may count on: the architecture that the running code was compiled for, the device's own or an older one, and
// what that has. The one place that is asked before a kernel is chosen that does not run everywhere from sm_80 on.
#pragma once

#include <cstdint>

namespace sluice::kernels::cuda {

struct Features {
  int arch = 0;               // compute capability, times ten
  bool hopper = false;        // sm_90a: wgmma, and what is made for that chip
  bool bulk_copies = false;   // from sm_90 on: TMA, barriers that count bytes, clusters of blocks
  bool early_launch = false;  // from sm_90 on: programmatic dependent launch
  int64_t shared_bytes = 0;   // of a block, at most

  bool operator==(const Features&) const = default;
};

// Of the device that this process computes on (use_features()); of the current one where none was chosen. Thread-safe.
const Features& features();

}  // namespace sluice::kernels::cuda

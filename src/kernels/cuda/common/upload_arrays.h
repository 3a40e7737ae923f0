// Arrays of a step from pinned memory to the device by one kernel: between two steps the copy engine would take some 4 us for
// each, since it starts when the step in front has ended. This one has read them by then.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/params.h"

namespace sluice::kernels::cuda {

// Addresses are multiples of 16, and so are the bytes that may be read and written behind `bytes`.
struct UploadArraysParams {
  static constexpr int kMost = 16;
  static constexpr int64_t kMostBytes = int64_t{1} << 18;  // of all; more goes faster by the copy engine
  struct Array {
    void* device;
    const void* pinned;
    int64_t bytes;
  };
  Array arrays[kMost];
  int64_t count;
};
void launch_upload_arrays(const UploadArraysParams&, Stream);

}  // namespace sluice::kernels::cuda

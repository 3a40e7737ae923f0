// How the features of a process are found and chosen: when its device is opened.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "kernels/cuda/common/features.h"

namespace sluice::kernels::cuda {

// Of code compiled for `arch`, with the instructions of sm_90a or without, where a block may have so much shared memory.
Features features_of(int arch, bool hopper, int64_t shared_bytes);

// What a device of another architecture would have of `real`: 80, 89, 90, 100 or 120, or 0 for all of it. Fails where it is
// another number, and where such a device has what `real` lacks.
Result<Features> features_as(const Features& real, int arch);

// Why there is no code for a device: its name and capability (times ten), what this program holds, what to build.
std::string no_code_message(std::string_view device, int capability, std::string_view built_for);

// -- defined in device_features.cu

// Of the current device, by a kernel that says what it was compiled for. Unavailable: this program has no code for it.
Result<Features> find_features();
// For all that this process does on its device. Fails where other ones were chosen before: kernels set their limits once.
Status use_features(const Features& chosen);
// The architectures that the kernels were compiled for, as CMake was told: "80, 90a".
std::string_view built_for();

}  // namespace sluice::kernels::cuda

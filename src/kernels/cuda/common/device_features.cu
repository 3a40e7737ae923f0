// What the device and the code for it have, and what this process was told to use of that.
#include <atomic>

#include "kernels/cuda/common/choose_features.h"
#include "kernels/cuda/common/device.cuh"

namespace sluice::kernels::cuda {
namespace {

struct Compiled {
  int arch, hopper;
};

__global__ void compiled_kernel(Compiled* out) {
  *out = {compiled::kArch, compiled::kHopper ? 1 : 0};
}

Error no_code(int device) {
  cudaGetLastError();  // that of a kernel without code leaves the device usable
  cudaDeviceProp properties{};
  check_launch(cudaGetDeviceProperties(&properties, device), "device query");
  return {ErrorCode::Unavailable,
          no_code_message(properties.name, 10 * properties.major + properties.minor, built_for())};
}

bool lacks_code(cudaError_t error) {
  return error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
         error == cudaErrorUnsupportedPtxVersion || error == cudaErrorInvalidKernelImage ||
         error == cudaErrorJitCompilerNotFound;
}

std::atomic<const Features*> chosen_features{nullptr};

}  // namespace

std::string_view built_for() {
  return SLUICE_CUDA_BUILT_FOR;
}

Result<Features> find_features() {
  int device = 0, shared_bytes = 0;
  check_launch(cudaGetDevice(&device), "device query");
  check_launch(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
               "device query");
  cudaFuncAttributes attributes{};
  if (const cudaError_t error = cudaFuncGetAttributes(&attributes, compiled_kernel); lacks_code(error))
    return no_code(device);
  Compiled* seen = nullptr;
  check_launch(cudaMallocHost(&seen, sizeof *seen), "device query");
  *seen = {};
  compiled_kernel<<<1, 1>>>(seen);
  const cudaError_t launched = cudaGetLastError();
  const cudaError_t ran = launched == cudaSuccess ? cudaDeviceSynchronize() : launched;
  const Compiled compiled = *seen;
  cudaFreeHost(seen);
  if (lacks_code(ran)) return no_code(device);
  check_launch(ran, "device query");
  return features_of(compiled.arch, compiled.hopper != 0, shared_bytes);
}

Status use_features(const Features& chosen) {
  static const Features first = chosen;
  if (chosen != first) {
    return Error{ErrorCode::Unsupported, "this process computes as sm_" + std::to_string(first.arch) +
                                             " already, not as sm_" + std::to_string(chosen.arch)};
  }
  chosen_features.store(&first, std::memory_order_release);
  return {};
}

const Features& features() {
  if (const Features* chosen = chosen_features.load(std::memory_order_acquire)) return *chosen;
  static const Features found = [] {
    const Result<Features> result = find_features();
    if (!result) fail("device query", result.error().message.c_str());
    return *result;
  }();
  return found;
}

}  // namespace sluice::kernels::cuda

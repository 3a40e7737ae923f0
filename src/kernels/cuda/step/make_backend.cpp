// The devices of the machine, and the back-end on one of them.
#include <fmt/format.h>

#include <atomic>

#include "base/log.h"
#include "kernels/cuda/common/choose_features.h"
#include "kernels/cuda/step/backend.h"

namespace sluice::kernels {

namespace {

// At least one.
Result<int> count_devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice ||
      (error == cudaSuccess && count == 0)) {
    return Error{ErrorCode::Unavailable, "no NVIDIA driver or device"};
  }
  if (error != cudaSuccess) {
    return Error{ErrorCode::Unavailable, fmt::format("CUDA does not start: {}", cudaGetErrorString(error))};
  }
  return count;
}

// Kernels set their limits (shared memory, blocks at once) once a process, for the device they first run on.
Status claim_device(int device) {
  static std::atomic<int> claimed{-1};
  int before = -1;
  if (claimed.compare_exchange_strong(before, device) || before == device) return {};
  return Error{ErrorCode::Unsupported,
               fmt::format("cuda:{}: this process computes on cuda:{} already, and on one device only",
                           device, before)};
}

Status choose_features(int arch) {
  const Result<cuda::Features> found = cuda::find_features();
  if (!found) return found.error();
  const Result<cuda::Features> chosen = cuda::features_as(*found, arch);
  if (!chosen) return chosen.error();
  return cuda::use_features(*chosen);
}

std::string name_of(const cudaDeviceProp& properties) {
  const int own = 10 * properties.major + properties.minor, used = cuda::features().arch;
  return fmt::format("cuda {} sm_{}{}", properties.name, own,
                     own == used ? "" : fmt::format(" as sm_{}", used));
}

void log_gemms(int arch) {
  for (const std::string& line : cuda::describe_gemms(arch)) log_debug("gemm {}", line);
}

}  // namespace

Result<std::vector<std::string>> describe_cuda_devices() {
  const Result<int> count = count_devices();
  if (!count) return count.error();
  std::vector<std::string> devices;
  for (int device = 0; device < *count; ++device) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
      devices.push_back(fmt::format("device {} does not answer", device));
      continue;
    }
    devices.push_back(fmt::format("{}, sm_{}{}, {:.1f} GiB", properties.name, properties.major,
                                  properties.minor,
                                  static_cast<double>(properties.totalGlobalMem) / (1 << 30)));
  }
  return devices;
}

Result<std::unique_ptr<CudaBackend>> make_cuda_backend(const CudaOptions& options) {
  const Result<int> count = count_devices();
  if (!count) return count.error();
  if (options.device < 0 || options.device >= *count) {
    return Error{ErrorCode::Unavailable,
                 fmt::format("no device cuda:{}: this machine has {} CUDA device{}, {}", options.device,
                             *count, *count == 1 ? "" : "s",
                             *count == 1 ? "cuda:0" : fmt::format("cuda:0 to cuda:{}", *count - 1))};
  }
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, options.device) != cudaSuccess)
    return Error{ErrorCode::Unavailable, fmt::format("device cuda:{} does not answer", options.device)};
  if (Status status = claim_device(options.device); !status) return status.error();
  try {
    cuda::use_device(options.device);
    if (Status status = choose_features(options.arch); !status) return status.error();
    const int arch = cuda::gemm_arch(cuda::features());
    const cuda::StepContext::Options device{options.device, arch, properties.multiProcessorCount,
                                            options.deterministic};
    auto made = std::make_unique<cuda::CudaBackendImpl>(options, device, name_of(properties));
    log_gemms(arch);
    return std::unique_ptr<CudaBackend>(std::move(made));
  } catch (const DeviceError& failure) {
    return Error{ErrorCode::Unavailable, failure.what()};
  }
}

}  // namespace sluice::kernels

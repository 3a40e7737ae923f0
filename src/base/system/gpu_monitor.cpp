#include "base/system/gpu_monitor.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <mutex>

#include "base/clock.h"

namespace sluice {

namespace {

// The part of NVML's C interface that is used here. Every function returns 0 where all went well.
struct Utilization {
  unsigned gpu, memory;  // percent
};
struct MemoryInfo {
  unsigned long long total, free, used;
};
using Device = void*;

struct Nvml {
  void* library = nullptr;
  int (*init)() = nullptr;
  int (*device)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*utilization)(Device, Utilization*) = nullptr;
  int (*memory)(Device, MemoryInfo*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;             // milliwatt
  int (*temperature)(Device, int, unsigned*) = nullptr;  // of sensor 0, the chip

  bool load() {
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    return library != nullptr && find(init, "nvmlInit_v2") && find(device, "nvmlDeviceGetHandleByIndex_v2") &&
           find(name, "nvmlDeviceGetName") && find(utilization, "nvmlDeviceGetUtilizationRates") &&
           find(memory, "nvmlDeviceGetMemoryInfo") && find(power, "nvmlDeviceGetPowerUsage") &&
           find(temperature, "nvmlDeviceGetTemperature");
  }
  template <class Function>
  bool find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(dlsym(library, symbol));
    return function != nullptr;
  }
};

class NvmlMonitor : public GpuMonitor {
 public:
  NvmlMonitor(const Nvml& nvml, Device device) : nvml_(nvml), device_(device) {}

  std::optional<GpuStats> read() override {
    constexpr double kEvery = 0.1;
    const std::lock_guard lock(mutex_);
    if (asked_ && seconds_since(*asked_) < kEvery) return latest_;
    asked_ = Clock::now();
    latest_ = ask();
    return latest_;
  }

 private:
  std::optional<GpuStats> ask() const {
    GpuStats stats;
    char name[96] = {};
    Utilization utilization{};
    MemoryInfo memory{};
    unsigned milliwatt = 0, degrees = 0;
    if (nvml_.utilization(device_, &utilization) != 0 || nvml_.memory(device_, &memory) != 0)
      return std::nullopt;
    if (nvml_.name(device_, name, sizeof name) == 0) stats.name.assign(name);
    if (nvml_.power(device_, &milliwatt) == 0) stats.power_w = milliwatt / 1e3;
    if (nvml_.temperature(device_, 0, &degrees) == 0) stats.temperature_c = degrees;
    stats.utilization = utilization.gpu / 100.0;
    stats.memory_used = memory.used;
    stats.memory_total = memory.total;
    return stats;
  }

  Nvml nvml_;
  Device device_;
  std::mutex mutex_;
  std::optional<TimePoint> asked_;
  std::optional<GpuStats> latest_;
};

}  // namespace

Result<std::shared_ptr<GpuMonitor>> GpuMonitor::open(unsigned gpu) {
  Nvml nvml;
  if (!nvml.load()) {
    if (nvml.library != nullptr) dlclose(nvml.library);
    return Error{ErrorCode::Unavailable, "NVML is not installed"};
  }
  Device device = nullptr;
  if (const int problem = nvml.init(); problem != 0)
    return Error{ErrorCode::Unavailable, fmt::format("NVML does not start: error {}", problem)};
  if (const int problem = nvml.device(gpu, &device); problem != 0)
    return Error{ErrorCode::Unavailable, fmt::format("NVML knows no GPU {}: error {}", gpu, problem)};
  return std::shared_ptr<GpuMonitor>(std::make_shared<NvmlMonitor>(nvml, device));
}

}  // namespace sluice

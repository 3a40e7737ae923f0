#include "runtime/device.h"

#include <fmt/format.h>

#include "kernels/cpu/cpu.h"
#include "kernels/ref/ref.h"

namespace sluice::runtime {

void DeviceOptions::declare(OptionSet& options) {
  options.add(device, "device", "where to compute: auto, cpu, ref (plain loops)").shown_as("NAME");
  options.add(isa, "isa", "instruction set of the CPU kernels, or auto for the best").shown_as("NAME");
  options.add(threads, "threads", "CPU threads; 0: all cores").short_name('t').within(0, 1024);
}

Result<std::shared_ptr<kernels::Backend>> make_backend(const DeviceOptions& options) {
  if (options.device == "ref") return std::shared_ptr<kernels::Backend>(kernels::make_ref_backend());
  if (options.device != "cpu" && options.device != "auto")
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("'{}' is not a device; known are: auto, cpu, ref", options.device)};
  Result<std::unique_ptr<kernels::Backend>> made = kernels::make_cpu_backend(
      {.threads = options.threads, .isa = options.isa == "auto" ? "" : options.isa});
  if (!made) return made.error();
  return std::shared_ptr<kernels::Backend>(std::move(*made));
}

std::vector<std::string> describe_devices() {
  return {fmt::format("cpu: {}", fmt::join(kernels::available_isa_names(), ", ")), "ref: plain loops"};
}

}  // namespace sluice::runtime

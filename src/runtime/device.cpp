#include "runtime/device.h"

#include <fmt/format.h>

#include "base/thread_pool.h"
#include "kernels/ref/ref.h"

namespace sluice::runtime {

void DeviceOptions::declare(OptionSet& options) {
  options.add(device, "device", "where to compute: auto, cpu, ref (plain loops)").shown_as("NAME");
  options.add(isa, "isa", "instruction set of the CPU kernels, or auto for the best").shown_as("NAME");
  options.add(threads, "threads", "CPU threads; 0: all cores").short_name('t').within(0, 1024);
}

Result<std::shared_ptr<kernels::Backend>> make_backend(const DeviceOptions& options) {
  if (options.device == "ref" || options.device == "auto")
    return std::shared_ptr<kernels::Backend>(kernels::make_ref_backend());
  return Error{ErrorCode::InvalidArgument,
               fmt::format("'{}' is not a device; known are: auto, cpu, ref", options.device)};
}

std::vector<std::string> describe_devices() {
  return {"ref"};
}

}  // namespace sluice::runtime

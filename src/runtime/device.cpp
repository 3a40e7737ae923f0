#include "runtime/device.h"

#include <fmt/format.h>

#include "base/log.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "kernels/ref/ref.h"

namespace sluice::runtime {

void DeviceOptions::declare(OptionSet& options) {
  options.add(device, "device", "where to compute: auto, cpu, cuda, ref (plain loops)").shown_as("NAME");
  options.add(isa, "isa", "instruction set of the CPU kernels, or auto for the best").shown_as("NAME");
  options.add(threads, "threads", "CPU threads; 0: all cores").short_name('t').within(0, 1024);
  options.add_choice<bool>(repack, "repack",
                           "copy quantised weights into the order that kernels read fastest (cpu); off: read "
                           "them where the file is mapped",
                           {{"off", false}, {"on", true}});
  options.add_choice<bool>(fp8, "quantize", "keep plain matrices in fp8, with a scale for each row (cuda)",
                           {{"none", false}, {"fp8", true}});
  options.add_choice<kernels::Activations>(
      activations, "activations",
      "what lies between two operations (cuda); auto: f32 for mixtures, else bf16",
      {{"auto", kernels::Activations::Auto},
       {"bf16", kernels::Activations::BF16},
       {"f32", kernels::Activations::F32}});
  options.add_choice<bool>(tuning, "tuning",
                           "time the algorithms of products at start; off: take the library's first (cuda)",
                           {{"off", false}, {"on", true}});
  options.add_choice<bool>(deterministic, "deterministic",
                           "results with the same bits in any batch (cuda; the CPU's always have)",
                           {{"off", false}, {"on", true}});
}

namespace {

// What asks for other numbers than a device without the GPU's types computes is refused, not left out.
Status check_without_card(const DeviceOptions& options) {
  if (options.fp8) return Error{ErrorCode::Unsupported, "--quantize fp8 is for GPUs, and none is used"};
  if (options.activations == kernels::Activations::BF16)
    return Error{ErrorCode::Unsupported, "--activations bf16 is for GPUs, and none is used"};
  return {};
}

Result<std::shared_ptr<kernels::Backend>> make_cpu(const DeviceOptions& options) {
  if (Status status = check_without_card(options); !status) return status.error();
  Result<std::unique_ptr<kernels::Backend>> made =
      kernels::make_cpu_backend({.threads = options.threads,
                                 .isa = options.isa == "auto" ? "" : options.isa,
                                 .repack = options.repack});
  if (!made) return made.error();
  return std::shared_ptr<kernels::Backend>(std::move(*made));
}

Result<std::shared_ptr<kernels::Backend>> make_ref(const DeviceOptions& options) {
  if (Status status = check_without_card(options); !status) return status.error();
  return std::shared_ptr<kernels::Backend>(kernels::make_ref_backend());
}

Result<std::shared_ptr<kernels::Backend>> make_gpu(const DeviceOptions& options) {
  Result<std::unique_ptr<kernels::CudaBackend>> made = kernels::make_cuda_backend(
      {.weights = options.fp8 ? kernels::WeightStorage::Fp8 : kernels::WeightStorage::AsStored,
       .activations = options.activations,
       .deterministic = options.deterministic,
       .search = options.tuning});
  if (!made) return made.error();
  return std::shared_ptr<kernels::Backend>(std::move(*made));
}

// The GPU where there is one and this build can use it, else the CPU.
Result<std::shared_ptr<kernels::Backend>> make_best(const DeviceOptions& options) {
  Result<std::shared_ptr<kernels::Backend>> gpu = make_gpu(options);
  if (gpu) return gpu;
  if (gpu.error().code == ErrorCode::Unavailable) log_info("{}: using the CPU", gpu.error().message);
  return make_cpu(options);
}

}  // namespace

Result<std::shared_ptr<kernels::Backend>> make_backend(const DeviceOptions& options) {
  if (options.device == "ref") return make_ref(options);
  if (options.device == "cpu") return make_cpu(options);
  if (options.device == "auto") return make_best(options);
  if (options.device != "cuda")
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("'{}' is not a device; known are: auto, cpu, cuda, ref", options.device)};
  return make_gpu(options);
}

std::vector<std::string> describe_devices() {
  std::vector<std::string> devices = {fmt::format("cpu: {}", fmt::join(kernels::available_isa_names(), ", ")),
                                      "ref: plain loops"};
  if (const auto gpus = kernels::describe_cuda_devices()) {
    for (const std::string& gpu : *gpus) devices.push_back("cuda: " + gpu);
  } else {
    devices.push_back("cuda: none, " + gpus.error().message);
  }
  return devices;
}

}  // namespace sluice::runtime

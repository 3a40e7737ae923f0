#include "runtime/device.h"

#include <fmt/format.h>

#include <charconv>

#include "base/log.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "kernels/ref/ref.h"

namespace sluice::runtime {

void DeviceOptions::declare(OptionSet& options) {
  options
      .add(device, "device",
           "where to compute: auto, cpu, cuda (the first GPU, of several ranks one each), "
           "cuda:N (the GPU of index N), ref (plain loops)")
      .shown_as("NAME");
  options.add(isa, "isa", "instruction set of the CPU kernels, or auto for the best").shown_as("NAME");
  options
      .add(threads, "threads", "CPU threads; 0: the physical cores of a NUMA node, within the cgroup's quota")
      .short_name('t')
      .within(0, 1024);
  options.add_choice<bool>(repack, "repack",
                           "copy quantised weights into the order that kernels read fastest (cpu); off: read "
                           "them where the file is mapped",
                           {{"off", false}, {"on", true}});
  options.add_choice<bool>(fp8, "quantize", "keep plain matrices in fp8, with a scale for each row (cuda)",
                           {{"none", false}, {"fp8", true}});
  options.add_choice<kernels::Activations>(
      activations, "activations",
      "what lies between two operations (cuda); auto: bf16, in 'check' f32 for mixtures",
      {{"auto", kernels::Activations::Auto},
       {"bf16", kernels::Activations::BF16},
       {"f32", kernels::Activations::F32}});
  options.add_choice<bool>(tuning, "tuning",
                           "time the algorithms of GEMMs at start; off: take the library's first (cuda)",
                           {{"off", false}, {"on", true}});
  options.add_choice<bool>(
      whole_stack, "whole-stack",
      "run all layers of a plain dense model in one launch, in steps of few tokens (cuda)",
      {{"off", false}, {"on", true}});
  options.add_choice<int>(cuda_arch, "cuda-arch",
                          "for development: use a GPU as if it were of this architecture, with the kernels "
                          "and limits that one would have",
                          {{"auto", 0}, {"80", 80}, {"89", 89}, {"90", 90}, {"100", 100}, {"120", 120}});
  options.add_choice<bool>(deterministic, "deterministic",
                           "results with the same bits in any batch (cuda; the CPU's always have)",
                           {{"off", false}, {"on", true}});
}

namespace {

// What asks for other numbers than a device without the GPU's types computes is refused, not left out.
Status check_without_gpu(const DeviceOptions& options) {
  if (options.fp8) return Error{ErrorCode::Unsupported, "--quantize fp8 is for GPUs, and none is used"};
  if (options.activations == kernels::Activations::BF16)
    return Error{ErrorCode::Unsupported, "--activations bf16 is for GPUs, and none is used"};
  return {};
}

Result<std::shared_ptr<kernels::Backend>> make_cpu(const DeviceOptions& options) {
  if (Status status = check_without_gpu(options); !status) return status.error();
  Result<std::unique_ptr<kernels::Backend>> made =
      kernels::make_cpu_backend({.threads = options.threads,
                                 .isa = options.isa == "auto" ? "" : options.isa,
                                 .repack = options.repack});
  if (!made) return made.error();
  return std::shared_ptr<kernels::Backend>(std::move(*made));
}

Result<std::shared_ptr<kernels::Backend>> make_ref(const DeviceOptions& options) {
  if (Status status = check_without_gpu(options); !status) return status.error();
  return std::shared_ptr<kernels::Backend>(kernels::make_ref_backend());
}

Result<std::shared_ptr<kernels::Backend>> make_gpu(const DeviceOptions& options, CudaDevice device) {
  int index = device.index.value_or(0);
  if (!device.index && options.place > 0)
    if (const auto gpus = kernels::describe_cuda_devices(); gpus && !gpus->empty())
      index = options.place % static_cast<int>(gpus->size());
  Result<std::unique_ptr<kernels::CudaBackend>> made = kernels::make_cuda_backend(
      {.device = index,
       .weights = options.fp8 ? kernels::WeightStorage::Fp8 : kernels::WeightStorage::AsStored,
       .activations = options.activations,
       .deterministic = options.deterministic,
       .whole_stack = options.whole_stack,
       .arch = options.cuda_arch,
       .search = options.tuning});
  if (!made) return made.error();
  return std::shared_ptr<kernels::Backend>(std::move(*made));
}

struct MakeBackend {
  const DeviceOptions& options;

  Result<std::shared_ptr<kernels::Backend>> operator()(RefDevice) const { return make_ref(options); }
  Result<std::shared_ptr<kernels::Backend>> operator()(CpuDevice) const { return make_cpu(options); }
  Result<std::shared_ptr<kernels::Backend>> operator()(CudaDevice device) const {
    return make_gpu(options, device);
  }
  Result<std::shared_ptr<kernels::Backend>> operator()(AutoDevice) const {
    Result<std::shared_ptr<kernels::Backend>> gpu = make_gpu(options, {});
    if (gpu) return gpu;
    if (gpu.error().code == ErrorCode::Unavailable) log_info("{}: using the CPU", gpu.error().message);
    return make_cpu(options);
  }
};

}  // namespace

Result<DeviceChoice> parse_device(std::string_view text) {
  constexpr std::string_view kCudaIndex = "cuda:";
  if (text == "auto") return DeviceChoice(AutoDevice{});
  if (text == "cpu") return DeviceChoice(CpuDevice{});
  if (text == "ref") return DeviceChoice(RefDevice{});
  if (text == "cuda") return DeviceChoice(CudaDevice{});
  if (!text.starts_with(kCudaIndex))
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("'{}' is not a device; known are: auto, cpu, cuda, cuda:N, ref", text)};
  const std::string_view digits = text.substr(kCudaIndex.size());
  int index = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (problem != std::errc() || end != digits.data() + digits.size() || digits.starts_with('-'))
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("'{}' is not a device: '{}' is not the index of a GPU, a whole number from 0 on",
                             text, digits)};
  return DeviceChoice(CudaDevice{index});
}

Result<std::shared_ptr<kernels::Backend>> make_backend(const DeviceOptions& options) {
  const Result<DeviceChoice> device = parse_device(options.device);
  if (!device) return device.error();
  Result<std::shared_ptr<kernels::Backend>> made = std::visit(MakeBackend{options}, *device);
  if (made) log_debug("device {}: {}", options.device, (*made)->name());
  return made;
}

std::vector<std::string> describe_devices() {
  std::vector<std::string> devices = {fmt::format("cpu: {}", fmt::join(kernels::available_isa_names(), ", ")),
                                      "ref: plain loops"};
  if (const auto gpus = kernels::describe_cuda_devices()) {
    for (size_t i = 0; i < gpus->size(); ++i) devices.push_back(fmt::format("cuda:{}: {}", i, (*gpus)[i]));
  } else {
    devices.push_back("cuda: none, " + gpus.error().message);
  }
  return devices;
}

}  // namespace sluice::runtime

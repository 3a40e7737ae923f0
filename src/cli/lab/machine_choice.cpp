#include "cli/lab/machine_choice.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "llm/model_store.h"
#include "models/outline.h"
#include "runtime/device.h"

namespace sluice::cli {

Result<lab::Machine> choose_machine(const std::string& device) {
  std::error_code none;
  const std::string kept = lab::calibration_path();
  const bool is_kept = std::filesystem::exists(kept, none);
  if (device == "this" && !is_kept)
    return Error{ErrorCode::NotFound, "this machine has no profile yet; 'sluice plan --calibrate' makes it"};
  if (device == "this" || (device.empty() && is_kept)) return lab::load_machine(kept);
  if (names_gpu(device)) {
    const std::string gpu = lab::calibration_path(true);
    if (std::filesystem::exists(gpu, none)) return lab::load_machine(gpu);
    return Error{ErrorCode::NotFound,
                 "this machine's GPU has no profile yet; 'sluice plan --calibrate --device cuda' makes it"};
  }
  if (!device.empty())
    return std::filesystem::is_regular_file(device, none) ? lab::load_machine(device)
                                                          : lab::machine_named(device);
  fmt::print(
      stderr,
      "this machine has no profile: these are an H100's figures; 'sluice plan --calibrate' measures the "
      "machine, --device names another\n");
  return lab::machine_named("H100");
}

bool names_gpu(const std::string& device) {
  const Result<runtime::DeviceChoice> choice = runtime::parse_device(device);
  return choice && std::holds_alternative<runtime::CudaDevice>(*choice);
}

Result<models::ModelFiles> outline_of(const std::string& reference) {
  std::error_code none;
  if (!reference.empty() && std::filesystem::exists(reference, none)) return models::open_outline(reference);
  Result<std::string> path = llm::resolve_model(reference);
  if (!path) return path.error();
  return models::open_outline(*path);
}

}  // namespace sluice::cli

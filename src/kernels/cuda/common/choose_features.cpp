#include "kernels/cuda/common/choose_features.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::kernels::cuda {

namespace {

struct KnownArch {
  int arch;
  int64_t shared_bytes;
};
constexpr KnownArch kKnownArchs[] = {
    {80, 163 << 10}, {89, 99 << 10}, {90, 227 << 10}, {100, 227 << 10}, {120, 99 << 10}};

constexpr int kOldest = 80;

}  // namespace

Features features_of(int arch, bool hopper, int64_t shared_bytes) {
  return {.arch = arch,
          .hopper = hopper,
          .bulk_copies = arch >= 90,
          .early_launch = arch >= 90,
          .shared_bytes = shared_bytes};
}

Result<Features> features_as(const Features& real, int arch) {
  if (arch == 0) return real;
  const KnownArch* const known = std::ranges::find(kKnownArchs, arch, &KnownArch::arch);
  if (known == std::end(kKnownArchs)) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("--cuda-arch {}: known are auto, 80, 89, 90, 100, 120", arch)};
  }
  const Features result =
      features_of(arch, real.hopper && arch == 90, std::min(real.shared_bytes, known->shared_bytes));
  if (result.bulk_copies && !real.bulk_copies) {
    return Error{ErrorCode::Unavailable,
                 fmt::format("--cuda-arch {}: the code that runs here was compiled for sm_{}, which has less",
                             arch, real.arch)};
  }
  return result;
}

std::string no_code_message(std::string_view device, int capability, std::string_view built_for) {
  std::string text = fmt::format("{} has compute capability {}.{}, and this program holds code for {}",
                                 device, capability / 10, capability % 10, built_for);
  if (capability < kOldest)
    return fmt::format("{}: {}.{} and later are supported", text, kOldest / 10, kOldest % 10);
  return fmt::format("{}: configure it with -DSLUICE_CUDA_ARCHITECTURES={}{} and build it again", text,
                     capability, capability == 90 ? "a" : "");
}

}  // namespace sluice::kernels::cuda

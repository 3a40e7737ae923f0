#include "kernels/cuda/collective/introductions.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "kernels/cuda/common/host.h"

namespace sluice::kernels::cuda {

Introduction introduce(int device) {
  Introduction own{};
  gethostname(own.host, sizeof own.host - 1);
  own.process = getpid();
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "asking for the device");
  static_assert(sizeof own.device == sizeof properties.uuid.bytes);
  std::memcpy(own.device, properties.uuid.bytes, sizeof own.device);
  return own;
}

std::string identity_of(const Introduction& one) {
  std::string digits;
  for (const char byte : one.device) digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return fmt::format("{} GPU-{}", one.host, digits);
}

Status agree(const RankExchange& ranks, std::string_view problem) {
  struct Text {
    char text[256];
  } own{};
  problem.copy(own.text, std::min(problem.size(), sizeof own.text - 1));
  const std::vector<Text> all = gather_of_ranks(ranks, own);
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].text[0] != '\0')
      return Error{ErrorCode::Unavailable, fmt::format("rank {}: {}", rank, all[rank].text)};
  return {};
}

}  // namespace sluice::kernels::cuda

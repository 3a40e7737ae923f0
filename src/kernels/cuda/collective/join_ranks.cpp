// Which collective the ranks of a group get.
#include <fmt/format.h>

#include "kernels/cuda/collective/ipc_collective.h"
#include "kernels/cuda/collective/nccl_collective.h"
#include "kernels/cuda/step/backend.h"

namespace sluice::kernels::cuda {

namespace {

// A rank that hangs ends the group within 5 s.
constexpr double kPatienceSeconds = 4;

// Of two ranks for which `holds`, the numbers; the same on every rank.
template <class Holds>
std::optional<std::pair<size_t, size_t>> find_pair(const std::vector<Introduction>& all, const Holds& holds) {
  for (size_t a = 0; a < all.size(); ++a)
    for (size_t b = a + 1; b < all.size(); ++b)
      if (holds(all[a], all[b])) return std::pair(a, b);
  return std::nullopt;
}

}  // namespace

std::string CudaBackendImpl::identity() const {
  step_.use_device();
  return identity_of(introduce(step_.device));
}

Result<std::unique_ptr<DeviceCollective>> CudaBackendImpl::join(const RankExchange& ranks, Collectives kind) {
  step_.use_device();
  const std::vector<Introduction> all = gather_of_ranks(ranks, introduce(step_.device));
  const auto apart =
      find_pair(all, [](const Introduction& a, const Introduction& b) { return !same_host(a, b); });
  if (kind == Collectives::Auto) kind = apart ? Collectives::Nccl : Collectives::Ipc;
  if (kind == Collectives::Ipc) {
    if (apart)
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("ranks {} and {} are on different machines, which CUDA IPC does not connect: "
                               "'--collectives nccl' does",
                               apart->first, apart->second)};
    return IpcCollective::join(step_, ranks, kPatienceSeconds);
  }
  if (const auto shared = find_pair(all, same_device))
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("NCCL refuses two ranks on one GPU, and ranks {} and {} are both on {}: "
                             "'--collectives ipc' takes them",
                             shared->first, shared->second, identity_of(all[shared->first]))};
  return join_nccl(step_, ranks);
}

}  // namespace sluice::kernels::cuda

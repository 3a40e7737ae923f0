// What the ranks tell each other before they join.
#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/group_device.h"

namespace sluice::kernels::cuda {

struct Introduction {
  char host[64];
  char device[16];  // UUID of the GPU
  int64_t process;
};
// Of this process and a device.
Introduction introduce(int device);
// "host GPU-..."
std::string identity_of(const Introduction& one);

inline bool same_host(const Introduction& a, const Introduction& b) {
  return std::strcmp(a.host, b.host) == 0;
}
inline bool same_device(const Introduction& a, const Introduction& b) {
  return same_host(a, b) && std::memcmp(a.device, b.device, sizeof a.device) == 0;
}

// A value of every rank, in their order. REQUIRES: T is plain data.
template <class T>
std::vector<T> gather_of_ranks(const RankExchange& ranks, const T& own) {
  const std::vector<std::byte> bytes = ranks.all_gather(std::as_bytes(std::span(&own, 1)));
  std::vector<T> all(static_cast<size_t>(ranks.size));
  std::memcpy(all.data(), bytes.data(), all.size() * sizeof(T));
  return all;
}

// All ranks hear of the first problem of any of them; an empty text is none.
Status agree(const RankExchange& ranks, std::string_view problem);

}  // namespace sluice::kernels::cuda

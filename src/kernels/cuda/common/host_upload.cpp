#include "kernels/cuda/common/host_upload.h"

#include <algorithm>
#include <cstring>

namespace sluice::kernels::cuda {

namespace {

constexpr size_t kSlotBytes = size_t{16} << 20;
constexpr int64_t kLeastOfThread = 1 << 20;
constexpr int kMostThreads = 8;  // more than a bus takes

}  // namespace

HostUpload::HostUpload(cudaStream_t stream)
    : stream_(stream), threads_(std::min(kMostThreads, available_cores())) {
  for (Slot& slot : slots_) {
    slot.memory = allocate_pinned(kSlotBytes);
    check(cudaEventCreateWithFlags(&slot.empty, cudaEventDisableTiming), "event");
  }
}

HostUpload::~HostUpload() {
  for (Slot& slot : slots_) {
    cudaEventSynchronize(slot.empty);
    cudaEventDestroy(slot.empty);
  }
}

void HostUpload::copy(void* to, const void* from, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const size_t count = std::min(kSlotBytes, bytes - done);
    Slot& slot = slots_[next_++ % slots_.size()];
    check(cudaEventSynchronize(slot.empty), "upload");
    auto* const piece = static_cast<std::byte*>(slot.memory.get());
    const auto* const source = static_cast<const std::byte*>(from) + done;
    threads_.for_ranges(static_cast<int64_t>(count), kLeastOfThread, [&](int64_t begin, int64_t end) {
      std::memcpy(piece + begin, source + begin, static_cast<size_t>(end - begin));
    });
    check(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, piece, count, cudaMemcpyHostToDevice, stream_),
          "upload");
    check(cudaEventRecord(slot.empty, stream_), "event");
    done += count;
  }
}

}  // namespace sluice::kernels::cuda

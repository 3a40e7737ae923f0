// What the back-end does as an asynchronous device: sampled tokens, copies beside the stream, memory, failures.
#include <algorithm>

#include "kernels/cuda/step/backend.h"

namespace sluice::kernels::cuda {

namespace {
constexpr int kSlots = 1 << 16;
}

int CudaBackendImpl::slots() const {
  return kSlots;
}

void CudaBackendImpl::reserve_sampled(size_t rows) {
  if (rows <= sampled_.capacity) return;
  synchronize();
  sampled_.capacity = std::max<size_t>(256, 2 * rows);
  const size_t bytes = sampled_.capacity * sizeof(SampledToken);
  sampled_.device = allocate_device(bytes);
  for (PinnedBuffer& host : sampled_.host) host = cuda::allocate_pinned(bytes);
}

View CudaBackendImpl::rounded(const View& wide) {
  ConvertParams c = blank<ConvertParams>();
  c.x = wide;
  c.out =
      packed(wide, DType::BF16, scratch_.at_least(static_cast<size_t>(wide.n * wide.heads * wide.dim * 2)));
  issue(launch_convert, c);
  return c.out;
}

void CudaBackendImpl::sample(TensorView logits, std::span<const SampleArgs> rows,
                             std::span<const LogitAdjustment> edits) {
  SampleParams p = blank<SampleParams>();
  p.logits = view_of(logits);
  SLUICE_CHECK_EQ(p.logits.n, static_cast<int64_t>(rows.size()));
  if (p.logits.type == DType::F32) p.logits = rounded(p.logits);
  static_assert(sizeof(SampleArgs) % sizeof(int32_t) == 0 && sizeof(LogitAdjustment) % sizeof(int32_t) == 0);
  if (mode_ != Mode::Issue) reserve_sampled(rows.size());
  const auto* words = reinterpret_cast<const int32_t*>(rows.data());
  p.rows = staging_->put(kTokenBuffer, {words, rows.size() * (sizeof(SampleArgs) / sizeof(int32_t))}, mode_);
  const auto* edit_words = reinterpret_cast<const int32_t*>(edits.data());
  p.edits = const_cast<int32_t*>(staging_->put(
      kEditBuffer, {edit_words, edits.size() * (sizeof(LogitAdjustment) / sizeof(int32_t))}, mode_));
  p.out = sampled_.device.get();
  p.slots = static_cast<int32_t*>(slots_.get());
  issue(launch_sample, p);
}

void CudaBackendImpl::send_rows(TensorView x, float* pinned) {
  SLUICE_CHECK(mode_ == Mode::Eager);
  if (x.elements() > 0) copy_floats(pinned, x);
}

int64_t CudaBackendImpl::send_sampled(size_t count) {
  SLUICE_CHECK_LE(count, sampled_.capacity);
  const int64_t ticket = sampled_.sent++;
  const auto at = static_cast<size_t>(ticket % kTickets);
  sampled_.rows[at] = count;
  // By a kernel: the TMA unit starts late, and after all that waits for it already.
  if (count > 0)
    launch_store_to_host(sampled_.host[at].get(), sampled_.device.get(), count * sizeof(SampledToken),
                         stream_);
  check(cudaEventRecord(sampled_.there[at], stream_), "event");
  return ticket;
}

std::span<const SampledToken> CudaBackendImpl::wait_sampled(int64_t ticket) {
  SLUICE_CHECK(ticket >= sampled_.sent - kTickets && ticket < sampled_.sent);
  const auto at = static_cast<size_t>(ticket % kTickets);
  check(cudaEventSynchronize(sampled_.there[at]), "waiting for a step");
  return {static_cast<const SampledToken*>(sampled_.host[at].get()), sampled_.rows[at]};
}

std::shared_ptr<std::byte> CudaBackendImpl::allocate_pinned(size_t bytes) {
  copies_->prepare();
  std::shared_ptr<void> memory = cuda::allocate_pinned(bytes);
  return {memory, static_cast<std::byte*>(memory.get())};
}

void CudaBackendImpl::copy_to_host(std::byte* pinned, std::span<const Piece> from) {
  SLUICE_CHECK(mode_ == Mode::Eager);
  copies_->to_host(pinned, from);
}

void CudaBackendImpl::copy_from_host(std::span<const Piece> to, const std::byte* pinned) {
  SLUICE_CHECK(mode_ == Mode::Eager);
  copies_->from_host(to, pinned);
}

void CudaBackendImpl::synchronize() {
  check(cudaStreamSynchronize(stream_), "waiting for the device");
  copies_->wait();
}

AsyncDevice::Room CudaBackendImpl::room() const {
  Room room;
  check(cudaMemGetInfo(&room.free_bytes, &room.total_bytes), "memory query");
  return room;
}

// A failed kernel leaves its error in every later call; running out of memory does not.
std::string CudaBackendImpl::failure() const {
  cudaGetLastError();
  const cudaError_t error = cudaStreamSynchronize(stream_);
  return error == cudaSuccess ? std::string() : cudaGetErrorString(error);
}

}  // namespace sluice::kernels::cuda

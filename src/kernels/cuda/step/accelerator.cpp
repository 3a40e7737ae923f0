// What the back-end does as an accelerator: drawn tokens, copies beside the stream, memory, failures.
#include <algorithm>

#include "kernels/cuda/step/backend.h"

namespace sluice::kernels::cuda {

namespace {
constexpr int kSlots = 1 << 16;
}

int Impl::slots() const {
  return kSlots;
}

void Impl::reserve_drawn(size_t rows) {
  if (rows <= drawn_.capacity) return;
  synchronize();
  drawn_.capacity = std::max<size_t>(256, 2 * rows);
  const size_t bytes = drawn_.capacity * sizeof(DrawnToken);
  drawn_.device = allocate_device(bytes);
  for (PinnedBuffer& host : drawn_.host) host = cuda::allocate_pinned(bytes);
}

View Impl::rounded(const View& wide) {
  ConvertParams c = blank<ConvertParams>();
  c.x = wide;
  c.out =
      packed(wide, DType::BF16, scratch_.at_least(static_cast<size_t>(wide.n * wide.heads * wide.dim * 2)));
  issue(launch_convert, c);
  return c.out;
}

void Impl::draw(TensorView logits, std::span<const DrawRow> rows, std::span<const TokenEdit> edits) {
  DrawParams p = blank<DrawParams>();
  p.logits = view_of(logits);
  SLUICE_CHECK_EQ(p.logits.n, static_cast<int64_t>(rows.size()));
  if (p.logits.type == DType::F32) p.logits = rounded(p.logits);
  static_assert(sizeof(DrawRow) % sizeof(int32_t) == 0 && sizeof(TokenEdit) % sizeof(int32_t) == 0);
  if (mode_ != Mode::Issue) reserve_drawn(rows.size());
  const auto* words = reinterpret_cast<const int32_t*>(rows.data());
  p.rows = staging_->put(kTokenBuffer, {words, rows.size() * (sizeof(DrawRow) / sizeof(int32_t))}, mode_);
  const auto* edit_words = reinterpret_cast<const int32_t*>(edits.data());
  p.edits = const_cast<int32_t*>(
      staging_->put(kEditBuffer, {edit_words, edits.size() * (sizeof(TokenEdit) / sizeof(int32_t))}, mode_));
  p.out = drawn_.device.get();
  p.slots = static_cast<int32_t*>(slots_.get());
  issue(launch_draw, p);
}

int64_t Impl::send_drawn(size_t count) {
  SLUICE_CHECK_LE(count, drawn_.capacity);
  const int64_t ticket = drawn_.sent++;
  const auto at = static_cast<size_t>(ticket % kTickets);
  drawn_.rows[at] = count;
  // By a kernel: the copy engine starts late, and after all that waits for it already.
  if (count > 0)
    launch_store_to_host(drawn_.host[at].get(), drawn_.device.get(), count * sizeof(DrawnToken), stream_);
  check(cudaEventRecord(drawn_.there[at], stream_), "event");
  return ticket;
}

std::span<const DrawnToken> Impl::wait_drawn(int64_t ticket) {
  SLUICE_CHECK(ticket >= drawn_.sent - kTickets && ticket < drawn_.sent);
  const auto at = static_cast<size_t>(ticket % kTickets);
  check(cudaEventSynchronize(drawn_.there[at]), "waiting for a step");
  return {static_cast<const DrawnToken*>(drawn_.host[at].get()), drawn_.rows[at]};
}

std::shared_ptr<std::byte> Impl::allocate_pinned(size_t bytes) {
  copies_->prepare();
  std::shared_ptr<void> memory = cuda::allocate_pinned(bytes);
  return {memory, static_cast<std::byte*>(memory.get())};
}

void Impl::copy_to_host(std::byte* pinned, std::span<const Piece> from) {
  SLUICE_CHECK(mode_ == Mode::Eager);
  copies_->to_host(pinned, from);
}

void Impl::copy_from_host(std::span<const Piece> to, const std::byte* pinned) {
  SLUICE_CHECK(mode_ == Mode::Eager);
  copies_->from_host(to, pinned);
}

void Impl::synchronize() {
  check(cudaStreamSynchronize(stream_), "waiting for the device");
  copies_->wait();
}

Accelerator::Room Impl::room() const {
  Room room;
  check(cudaMemGetInfo(&room.free_bytes, &room.total_bytes), "memory query");
  return room;
}

// A failed kernel leaves its error in every later call; running out of memory does not.
std::string Impl::failure() const {
  cudaGetLastError();
  const cudaError_t error = cudaStreamSynchronize(stream_);
  return error == cudaSuccess ? std::string() : cudaGetErrorString(error);
}

}  // namespace sluice::kernels::cuda

#include "kernels/cuda/step/side_copies.h"

#include <algorithm>

#include "kernels/cuda/step/token_params.h"

namespace sluice::kernels::cuda {

namespace {

// What may be on its way at once; work that needs more waits for the first of it.
constexpr size_t kCopyChunkBytes = size_t{4} << 20, kChunks = 32;

}  // namespace

SideCopies::SideCopies(cudaStream_t work, Staging& staging) : work_(work), staging_(staging) {
  check(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "stream");
}

SideCopies::~SideCopies() {
  cudaStreamSynchronize(copies_);
  for (Chunk& chunk : chunks_) {
    cudaEventDestroy(chunk.filled);
    cudaEventDestroy(chunk.done);
  }
  cudaStreamDestroy(copies_);
}

void SideCopies::prepare() {
  while (chunks_.size() < kChunks) {
    DeviceBuffer memory = allocate_device(kCopyChunkBytes);
    Chunk& chunk = chunks_.emplace_back();
    chunk.memory = std::move(memory);
    check(cudaEventCreateWithFlags(&chunk.filled, cudaEventDisableTiming), "event");
    check(cudaEventCreateWithFlags(&chunk.done, cudaEventDisableTiming), "event");
  }
}

SideCopies::Chunk& SideCopies::next() {
  prepare();
  return chunks_[turn_++ % kChunks];
}

SideCopies::Share SideCopies::take_share(std::span<const AsyncDevice::Piece> pieces, size_t& index,
                                         size_t& offset) {
  Share share;
  while (index < pieces.size() && share.bytes < kCopyChunkBytes) {
    const size_t bytes = std::min(pieces[index].bytes - offset, kCopyChunkBytes - share.bytes);
    const auto address = reinterpret_cast<int64_t>(static_cast<std::byte*>(pieces[index].data) + offset);
    if (bytes > 0)
      share.words.insert(share.words.end(),
                         {address, static_cast<int64_t>(share.bytes), static_cast<int64_t>(bytes)});
    share.bytes += bytes;
    offset += bytes;
    if (offset == pieces[index].bytes) ++index, offset = 0;
  }
  return share;
}

void SideCopies::move(const Chunk& chunk, const Share& share, bool gather) {
  const auto* words = reinterpret_cast<const int32_t*>(share.words.data());
  MovePiecesParams p = blank<MovePiecesParams>();
  p.pieces = staging_.put(kTokenBuffer, {words, share.words.size() * 2}, Mode::Eager);
  p.packed = chunk.memory.get();
  p.count = static_cast<int64_t>(share.words.size() / 3);
  p.gather = gather ? 1 : 0;
  launch_move_pieces(p, work_);
}

void SideCopies::to_host(std::byte* pinned, std::span<const AsyncDevice::Piece> from) {
  for (size_t index = 0, offset = 0; index < from.size();) {
    const Share share = take_share(from, index, offset);
    if (share.bytes == 0) return;
    const Chunk& chunk = next();
    check(cudaStreamWaitEvent(work_, chunk.done), "copy to the host");
    move(chunk, share, true);
    check(cudaEventRecord(chunk.filled, work_), "event");
    check(cudaStreamWaitEvent(copies_, chunk.filled), "copy to the host");
    check(cudaMemcpyAsync(pinned, chunk.memory.get(), share.bytes, cudaMemcpyDeviceToHost, copies_),
          "copy to the host");
    check(cudaEventRecord(chunk.done, copies_), "event");
    pinned += share.bytes;
  }
}

void SideCopies::from_host(std::span<const AsyncDevice::Piece> to, const std::byte* pinned) {
  for (size_t index = 0, offset = 0; index < to.size();) {
    const Share share = take_share(to, index, offset);
    if (share.bytes == 0) return;
    const Chunk& chunk = next();
    check(cudaStreamWaitEvent(copies_, chunk.done), "copy from the host");
    check(cudaMemcpyAsync(chunk.memory.get(), pinned, share.bytes, cudaMemcpyHostToDevice, copies_),
          "copy from the host");
    check(cudaEventRecord(chunk.filled, copies_), "event");
    check(cudaStreamWaitEvent(work_, chunk.filled), "copy from the host");
    move(chunk, share, false);
    check(cudaEventRecord(chunk.done, work_), "event");
    pinned += share.bytes;
  }
}

bool SideCopies::pending() const {
  if (chunks_.empty()) return false;
  const cudaError_t state = cudaStreamQuery(copies_);
  if (state == cudaErrorNotReady) return true;
  check(state, "copies");
  return false;
}

void SideCopies::wait() const {
  check(cudaStreamSynchronize(copies_), "waiting for copies");
}

}  // namespace sluice::kernels::cuda

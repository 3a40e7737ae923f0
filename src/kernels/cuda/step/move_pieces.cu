// Pieces of device memory, wherever they lie, to one run of bytes or back. Grid: (parts of a piece, pieces). Reads and
// writes every byte once, sixteen at a time where both sides allow it.
#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/step/token_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 256, kParts = 8;

__global__ void __launch_bounds__(kThreads) move_kernel(const MovePiecesParams p) {
  wait_for_producer();
  allow_dependents();
  const auto* piece = static_cast<const int64_t*>(p.pieces) + 3 * int64_t{blockIdx.y};
  char* place = reinterpret_cast<char*>(piece[0]);
  char* packed = static_cast<char*>(p.packed) + piece[1];
  const char* from = p.gather != 0 ? place : packed;
  char* to = p.gather != 0 ? packed : place;
  const int64_t bytes = piece[2], step = int64_t{gridDim.x} * kThreads,
                first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool vector = (reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) % 16 == 0;
  const int64_t whole = vector ? bytes / 16 : 0;
  for (int64_t i = first; i < whole; i += step)
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  for (int64_t i = whole * 16 + first; i < bytes; i += step) to[i] = from[i];
}

__global__ void __launch_bounds__(kThreads)
    store_kernel(uint32_t* __restrict__ pinned, const uint32_t* data, int64_t words) {
  wait_for_producer();
  allow_dependents();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < words) pinned[i] = data[i];
}

}  // namespace

void launch_store_to_host(void* pinned, const void* data, size_t bytes, Stream stream) {
  const auto words = static_cast<int64_t>(bytes / sizeof(uint32_t));
  if (words == 0) return;
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(words, kThreads))), dim3(kThreads)};
  launch("store_to_host", store_kernel, grid, stream, static_cast<uint32_t*>(pinned),
         static_cast<const uint32_t*>(data), words);
}

void launch_move_pieces(const MovePiecesParams& p, Stream stream) {
  if (p.count == 0) return;
  const Grid grid{dim3(kParts, static_cast<unsigned>(p.count)), dim3(kThreads)};
  launch("move_pieces", move_kernel, grid, stream, p);
}

}  // namespace sluice::kernels::cuda

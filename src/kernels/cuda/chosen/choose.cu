// The best of a row of ranks, ascending by place; of equal ones the earlier.
//
// A block of 1,024 threads for each row: four passes of a radix select find the rank of the last that is chosen and how many
// of that rank are, a fifth writes the places in order, by ballots of warps and sums over them. Bytes moved: five times the
// row, from the L2.
#include "kernels/cuda/chosen/chosen_params.h"
#include "kernels/cuda/common/device.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32, kBins = 256;

struct Shared {
  uint32_t bins[kBins];
  uint32_t prefix, need;
  uint32_t warps[kWarps];
};

// The rank of the `take`-th best of ranks[count], and in s.need how many of that rank are among the best.
__device__ uint32_t find_last(Shared& s, const uint32_t* ranks, int64_t count, uint32_t take) {
  uint32_t prefix = 0, need = take;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < kBins; i += kThreads) s.bins[i] = 0;
    __syncthreads();
    const uint32_t above = shift == 24 ? 0 : ~0u << (shift + 8);
    for (int64_t i = threadIdx.x; i < count; i += kThreads) {
      const uint32_t rank = ranks[i];
      if ((rank & above) == prefix) atomicAdd(&s.bins[rank >> shift & (kBins - 1)], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int bin = kBins - 1;
      while (bin > 0 && s.bins[bin] < need) need -= s.bins[bin--];
      s.prefix = prefix | static_cast<uint32_t>(bin) << shift;
      s.need = need;
    }
    __syncthreads();
    prefix = s.prefix, need = s.need;
  }
  return prefix;
}

// How many threads before this one have the flag; `total`: how many of all.
__device__ __forceinline__ uint32_t count_before(Shared& s, bool flag, uint32_t& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t votes = __ballot_sync(0xffffffffu, flag);
  if (lane == 0) s.warps[warp] = __popc(votes);
  __syncthreads();
  uint32_t before = 0;
  total = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += s.warps[w];
    total += s.warps[w];
  }
  __syncthreads();
  return before + __popc(votes & ((1u << lane) - 1));
}

__global__ void __launch_bounds__(kThreads) choose_kernel(const ChooseParams p) {
  __shared__ Shared s;
  allow_dependents();
  wait_for_producer();
  const int64_t place = blockIdx.x / p.heads, head = blockIdx.x % p.heads, token = p.first + place;
  const int64_t last = p.table.seen != nullptr ? p.table.seen[token] : p.table.positions[token];
  const int64_t blocks = last / p.size + 1;
  int32_t* chosen = p.chosen + token * p.stride_n + head * p.stride_h;
  if (blocks <= p.most) {
    for (int64_t i = threadIdx.x; i < blocks; i += kThreads) chosen[i] = static_cast<int32_t>(i);
    return;
  }
  const int64_t among = blocks - p.local;
  const int take = p.most - p.local;
  for (int i = threadIdx.x; i < p.local; i += kThreads) chosen[take + i] = static_cast<int32_t>(among + i);
  if (take == 0) return;
  const uint32_t* ranks = p.ranks + (place * p.heads + head) * p.columns;
  const uint32_t least = find_last(s, ranks, among, static_cast<uint32_t>(take));
  const uint32_t need = s.need;
  uint32_t written = 0, equals = 0;
  for (int64_t base = 0; base < among; base += kThreads) {
    const int64_t i = base + threadIdx.x;
    const uint32_t rank = i < among ? ranks[i] : 0;
    uint32_t all_equal = 0, all_taken = 0;
    const bool equal = i < among && rank == least;
    const uint32_t before = equals + count_before(s, equal, all_equal);
    const bool taken = i < among && (rank > least || (equal && before < need));
    const uint32_t at = written + count_before(s, taken, all_taken);
    if (taken) chosen[at] = static_cast<int32_t>(i);
    equals += all_equal;
    written += all_taken;
  }
}

}  // namespace

void launch_choose(const ChooseParams& p, Stream stream) {
  if (p.count == 0) return;
  const Grid grid{dim3(static_cast<unsigned>(p.count * p.heads)), dim3(kThreads)};
  launch("choose", choose_kernel, grid, stream, p);
}

}  // namespace sluice::kernels::cuda

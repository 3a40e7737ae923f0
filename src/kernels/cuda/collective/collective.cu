// Sums over ranks on GPUs of one machine, or on one GPU, and the gather of the logits' columns.
//
// A rank writes into the inboxes of the others and reads its own. The blocks of the same number meet by flags: each writes
// how far it has come into the memory of the others, with release at system scope behind what it wrote there, and waits
// until all of them are as far. Block b of every rank handles the same elements, so blocks of different numbers need not
// meet. The numbers come from a count in the rank's own memory, so that a recorded step finds the next ones when it is
// replayed.
//
// Collective n uses inbox n % 2. A rank that has ended n + 1 has seen every other rank begin n + 1, and so end n: what it
// writes for n + 2 overwrites nothing that is still to be read.
//
// A block that has waited too long for a rank notes it in the rank's own memory and in the host's; it and all collectives
// behind it then end at once, with results of no use. Waits sleep, and there are at most kCollectiveBlocks blocks: ranks
// that share a device take turns on it.
//
// Shapes: x [count], or [n, dim] by rows. A thread moves pieces of eight elements. Bytes moved by a rank of S over links, of
// B bytes: one shot (S - 1) B out and in, two shots 2 (S - 1) B / S.
#include "kernels/cuda/collective/collective_params.h"
#include "kernels/cuda/common/device.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr unsigned kSleepNs = 200;

__device__ __forceinline__ CollectiveHeader& header(const CollectiveRanks& ranks, int rank) {
  return *reinterpret_cast<CollectiveHeader*>(ranks.memory[rank]);
}

__device__ __forceinline__ void store_release(uint32_t* flag, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* flag) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
__device__ __forceinline__ uint64_t now_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)::"memory");
  return now;
}

// One block on its way through a collective.
struct Meeting {
  const CollectiveRanks& ranks;
  uint32_t number;  // of the collective
  bool dead;        // a rank is missing

  // Every thread of the block, behind wait_for_producer().
  __device__ explicit Meeting(const CollectiveRanks& all) : ranks(all) {
    const CollectiveHeader& own = header(all, all.rank);
    number = *const_cast<const volatile uint32_t*>(&own.count);
    const int missing = threadIdx.x == 0 ? *const_cast<const volatile int32_t*>(&own.missing) : 0;
    dead = __syncthreads_or(missing) != 0;
  }

  // Inbox of a rank, the part of it that is for a sender, in elements of T.
  template <class T>
  __device__ __forceinline__ T* inbox(int rank) const {
    return reinterpret_cast<T*>(ranks.memory[rank] + kInboxOffset + int64_t{number % 2} * ranks.inbox_bytes);
  }

  // What the block wrote before is seen by the blocks of its number on all other ranks behind it. stage: 0, then 1.
  __device__ void meet(uint32_t stage) const {
    const uint32_t wanted = 2 * number + stage + 1;
    __syncthreads();
    const int peer = static_cast<int>(threadIdx.x);
    if (peer < ranks.size && peer != ranks.rank) {
      __threadfence_system();
      store_release(&header(ranks, peer).flags[ranks.rank][blockIdx.x], wanted);
      wait(peer, wanted);
    }
    __syncthreads();
  }

  __device__ void wait(int peer, uint32_t wanted) const {
    CollectiveHeader& own = header(ranks, ranks.rank);
    const uint32_t* flag = &own.flags[peer][blockIdx.x];
    uint64_t begun = 0;
    for (int polls = 0; static_cast<int32_t>(load_acquire(flag) - wanted) < 0; ++polls) {
      if (polls < 64) continue;
      if (begun == 0) begun = now_ns();
      if (*const_cast<volatile int32_t*>(&own.missing) != 0) return;
      if (now_ns() - begun > ranks.patience_ns) {
        if (atomicCAS(&own.missing, 0, peer + 1) == 0) {
          *const_cast<volatile int32_t*>(ranks.missing) = peer + 1;
          __threadfence_system();
        }
        return;
      }
      __nanosleep(kSleepNs);
    }
  }

  // The last block to end counts the collective.
  __device__ void end() const {
    __syncthreads();
    if (threadIdx.x != 0) return;
    CollectiveHeader& own = header(ranks, ranks.rank);
    __threadfence();
    if (atomicAdd(&own.done, 1u) + 1 < gridDim.x) return;
    own.done = 0;
    own.count = number + 1;
  }
};

// sum = the piece of all ranks, in their order: `own` is this rank's, those of the others lie `stride` elements apart.
template <class T>
__device__ __forceinline__ void add_pieces(const CollectiveRanks& ranks, const float* own, const T* inbox,
                                           int64_t stride, float* sum) {
  for (int sender = 0; sender < ranks.size; ++sender) {
    float f[8];
    if (sender == ranks.rank) {
#pragma unroll
      for (int j = 0; j < 8; ++j) f[j] = own[j];
    } else {
      load8<true>(inbox + sender * stride, 8, f);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[j] = sender == 0 ? f[j] : sum[j] + f[j];
  }
}

template <class T>
__device__ __forceinline__ void send_piece(const Meeting& meeting, int64_t at, const float* f) {
  for (int peer = 0; peer < meeting.ranks.size; ++peer)
    if (peer != meeting.ranks.rank) store8<true>(meeting.inbox<T>(peer) + at, 8, f);
}

template <class T, bool Vector>
__global__ void __launch_bounds__(kCollectiveThreads) one_shot_kernel(const AddUpParams p) {
  wait_for_producer();
  const Meeting meeting(p.ranks);
  if (meeting.dead) return;
  T* x = static_cast<T*>(p.x);
  const int64_t pieces = (p.count + 7) / 8, step = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t slot = pieces * 8;
  for (int64_t i = first; i < pieces; i += step) {
    float f[8];
    load8<Vector>(x + 8 * i, p.count - 8 * i, f);
    send_piece<T>(meeting, p.ranks.rank * slot + 8 * i, f);
  }
  meeting.meet(0);
  allow_dependents();
  const T* inbox = meeting.inbox<T>(p.ranks.rank);
  for (int64_t i = first; i < pieces; i += step) {
    float own[8], sum[8];
    load8<Vector>(x + 8 * i, p.count - 8 * i, own);
    add_pieces(p.ranks, own, inbox + 8 * i, slot, sum);
    store8<Vector>(x + 8 * i, p.count - 8 * i, sum);
  }
  meeting.end();
}

// Of an inbox the first half holds the ranks' parts of this rank's share, the second half the shares that are summed.
template <class T, bool Vector>
__global__ void __launch_bounds__(kCollectiveThreads) two_shots_kernel(const AddUpParams p) {
  wait_for_producer();
  const Meeting meeting(p.ranks);
  if (meeting.dead) return;
  T* x = static_cast<T*>(p.x);
  const int rank = p.ranks.rank, size = p.ranks.size;
  const int64_t pieces = (p.count + 7) / 8, share = (pieces + size - 1) / size;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t sums = p.ranks.inbox_bytes / 2 / int64_t{sizeof(T)};
  for (int k = 1; k < size; ++k) {
    const int peer = (rank + k) % size;
    for (int64_t j = first; j < share; j += step) {
      const int64_t i = peer * share + j;
      if (i >= pieces) break;
      float f[8];
      load8<Vector>(x + 8 * i, p.count - 8 * i, f);
      store8<true>(meeting.inbox<T>(peer) + (rank * share + j) * 8, 8, f);
    }
  }
  meeting.meet(0);
  const T* inbox = meeting.inbox<T>(rank);
  for (int64_t j = first; j < share; j += step) {
    const int64_t i = rank * share + j;
    if (i >= pieces) break;
    float own[8], sum[8];
    load8<Vector>(x + 8 * i, p.count - 8 * i, own);
    add_pieces(p.ranks, own, inbox + 8 * j, share * 8, sum);
    store8<Vector>(x + 8 * i, p.count - 8 * i, sum);
    send_piece<T>(meeting, sums + 8 * i, sum);
  }
  meeting.meet(1);
  allow_dependents();
  for (int k = 1; k < size; ++k) {
    const int peer = (rank + k) % size;
    for (int64_t j = first; j < share; j += step) {
      const int64_t i = peer * share + j;
      if (i >= pieces) break;
      float f[8];
      load8<true>(inbox + sums + 8 * i, 8, f);
      store8<Vector>(x + 8 * i, p.count - 8 * i, f);
    }
  }
  meeting.end();
}

__device__ __forceinline__ float block_sum(float v, float* shared) {
  v = warp_sum(v);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  float total = 0.0f;
  for (int w = 0; w < kCollectiveThreads / 32; ++w) total += shared[w];
  return total;
}

// A block walks over rows; thread t holds elements 8 (v · threads + t) + 0..7 of one.
template <class T, bool Vector, int Pieces>
__global__ void __launch_bounds__(kCollectiveThreads) add_up_norm_kernel(const AddUpNormParams p) {
  __shared__ float shared[kCollectiveThreads / 32];
  wait_for_producer();
  const Meeting meeting(p.ranks);
  if (meeting.dead) return;
  const int64_t padded = (p.dim + 7) / 8 * 8, slot = p.n * padded;
  const auto at = [&](int v) { return (int64_t{v} * kCollectiveThreads + threadIdx.x) * 8; };
  const T* b = static_cast<const T*>(p.b);
  for (int64_t row = blockIdx.x; row < p.n; row += gridDim.x)
    for (int v = 0; v < Pieces && at(v) < p.dim; ++v) {
      float f[8];
      load8<Vector>(b + row * p.dim + at(v), p.dim - at(v), f);
      send_piece<T>(meeting, p.ranks.rank * slot + row * padded + at(v), f);
    }
  meeting.meet(0);
  allow_dependents();
  const T* inbox = meeting.inbox<T>(p.ranks.rank);
  for (int64_t row = blockIdx.x; row < p.n; row += gridDim.x) {
    T* x = static_cast<T*>(p.x) + row * p.dim;
    float f[Pieces][8];
    float squares = 0.0f;
#pragma unroll
    for (int v = 0; v < Pieces; ++v) {
      if (at(v) >= p.dim) continue;
      float own[8], sum[8];
      load8<Vector>(b + row * p.dim + at(v), p.dim - at(v), own);
      add_pieces(p.ranks, own, inbox + row * padded + at(v), slot, sum);
      load8<Vector>(x + at(v), p.dim - at(v), f[v]);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        f[v][j] = widen(narrow<T>(f[v][j] + p.scale * widen(narrow<T>(sum[j]))));
        squares += f[v][j] * f[v][j];
      }
      store8<Vector>(x + at(v), p.dim - at(v), f[v]);
    }
    const float factor = rsqrtf(block_sum(squares, shared) / static_cast<float>(p.dim) + p.eps);
    T* out = static_cast<T*>(p.out) + row * p.dim;
#pragma unroll
    for (int v = 0; v < Pieces; ++v) {
      if (at(v) >= p.dim) continue;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const bool inside = at(v) + j < p.dim;
        f[v][j] *= factor * (p.gain != nullptr && inside ? p.gain[at(v) + j] : 1.0f);
      }
      store8<Vector>(out + at(v), p.dim - at(v), f[v]);
    }
  }
  meeting.end();
}

template <class T>
__global__ void __launch_bounds__(kCollectiveThreads) gather_columns_kernel(const GatherColumnsParams p) {
  wait_for_producer();
  const Meeting meeting(p.ranks);
  if (meeting.dead) return;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t slot = p.ranks.inbox_bytes / p.ranks.size / 16 * 16 / int64_t{sizeof(T)};
  const auto begin_of = [&](int rank) { return p.width * rank / p.ranks.size; };
  const auto for_pieces = [&](int rank, const auto& move) {
    const int64_t own = begin_of(rank + 1) - begin_of(rank), pieces = (own + 7) / 8;
    for (int64_t i = first; i < p.n * pieces; i += step) move(i / pieces, i % pieces * 8, own, i * 8);
  };
  const T* part = static_cast<const T*>(p.part);
  T* out = static_cast<T*>(p.out);
  for_pieces(p.ranks.rank, [&](int64_t row, int64_t col, int64_t own, int64_t place) {
    float f[8];
    load8<false>(part + row * own + col, own - col, f);
    if (p.ranks.rank == 0) {
      store8<false>(out + row * p.width + col, own - col, f);
    } else {
      store8<true>(meeting.inbox<T>(0) + p.ranks.rank * slot + place, 8, f);
    }
  });
  meeting.meet(0);
  allow_dependents();
  const T* inbox = meeting.inbox<T>(0);
  for (int sender = 1; p.ranks.rank == 0 && sender < p.ranks.size; ++sender)
    for_pieces(sender, [&](int64_t row, int64_t col, int64_t own, int64_t place) {
      float f[8];
      load8<true>(inbox + sender * slot + place, 8, f);
      store8<false>(out + row * p.width + begin_of(sender) + col, own - col, f);
    });
  meeting.end();
}

template <class T>
__global__ void __launch_bounds__(256) clear_rows_kernel(const ClearRowsParams p) {
  allow_dependents();
  wait_for_producer();
  for (int64_t row = blockIdx.x; row < p.x.n; row += gridDim.x) {
    if (p.kept[row] != 0) continue;
    T* x = static_cast<T*>(p.x.data) + row * p.x.stride_n;
    for (int64_t i = threadIdx.x; i < p.x.dim; i += blockDim.x) x[i] = narrow<T>(0.0f);
  }
}

// The same on every rank: it depends on shapes alone.
Grid grid_for(int64_t pieces) {
  const int64_t blocks = ceil_div(pieces, kCollectiveThreads);
  return {dim3(static_cast<unsigned>(blocks < 1                   ? 1
                                     : blocks < kCollectiveBlocks ? blocks
                                                                  : kCollectiveBlocks)),
          dim3(kCollectiveThreads)};
}

template <class T, bool Vector>
void launch_norm_of_sum(const AddUpNormParams& p, Stream stream) {
  const Grid grid{dim3(static_cast<unsigned>(p.n < kCollectiveBlocks ? p.n : kCollectiveBlocks)),
                  dim3(kCollectiveThreads)};
  const int64_t pieces = ceil_div(p.dim, 8 * kCollectiveThreads);
  if (pieces <= 1) return launch("sum and norm", add_up_norm_kernel<T, Vector, 1>, grid, stream, p);
  if (pieces <= 2) return launch("sum and norm", add_up_norm_kernel<T, Vector, 2>, grid, stream, p);
  check_launch(pieces <= 4 ? cudaSuccess : cudaErrorInvalidValue, "sum and norm of so many elements");
  launch("sum and norm", add_up_norm_kernel<T, Vector, 4>, grid, stream, p);
}

template <class T>
void load_sums() {
  const void* const kernels[] = {reinterpret_cast<const void*>(one_shot_kernel<T, true>),
                                 reinterpret_cast<const void*>(one_shot_kernel<T, false>),
                                 reinterpret_cast<const void*>(two_shots_kernel<T, true>),
                                 reinterpret_cast<const void*>(two_shots_kernel<T, false>),
                                 reinterpret_cast<const void*>(add_up_norm_kernel<T, true, 1>),
                                 reinterpret_cast<const void*>(add_up_norm_kernel<T, true, 2>),
                                 reinterpret_cast<const void*>(add_up_norm_kernel<T, true, 4>),
                                 reinterpret_cast<const void*>(add_up_norm_kernel<T, false, 1>),
                                 reinterpret_cast<const void*>(add_up_norm_kernel<T, false, 2>),
                                 reinterpret_cast<const void*>(add_up_norm_kernel<T, false, 4>),
                                 reinterpret_cast<const void*>(gather_columns_kernel<T>)};
  for (const void* kernel : kernels) {
    cudaFuncAttributes attributes;
    check_launch(cudaFuncGetAttributes(&attributes, kernel), "loading the kernels of sums");
  }
}

}  // namespace

void load_collectives() {
  load_sums<float>();
  load_sums<bf16>();
}

void launch_add_up(const AddUpParams& p, Stream stream) {
  const int64_t pieces = ceil_div(p.count, 8);
  const Grid grid = grid_for(p.two_shots != 0 ? ceil_div(pieces, p.ranks.size) : pieces);
  const bool vector = aligned16(p.x) && p.count % 8 == 0;
  visit_activations(p.type, [&](auto element) {
    using T = decltype(element);
    if (p.two_shots != 0) {
      launch("sum", vector ? two_shots_kernel<T, true> : two_shots_kernel<T, false>, grid, stream, p);
    } else {
      launch("sum", vector ? one_shot_kernel<T, true> : one_shot_kernel<T, false>, grid, stream, p);
    }
  });
}

void launch_add_up_norm(const AddUpNormParams& p, Stream stream) {
  const bool vector = aligned16(p.x) && aligned16(p.b) && aligned16(p.out) && p.dim % 8 == 0;
  visit_activations(p.type, [&](auto element) {
    using T = decltype(element);
    if (vector) return launch_norm_of_sum<T, true>(p, stream);
    launch_norm_of_sum<T, false>(p, stream);
  });
}

void launch_gather_columns(const GatherColumnsParams& p, Stream stream) {
  const Grid grid = grid_for(p.n * ceil_div(ceil_div(p.width, p.ranks.size), 8));
  visit_activations(p.type, [&](auto element) {
    launch("gather of columns", gather_columns_kernel<decltype(element)>, grid, stream, p);
  });
}

void launch_clear_rows(const ClearRowsParams& p, Stream stream) {
  const Grid grid{dim3(static_cast<unsigned>(p.x.n < 1024 ? p.x.n : 1024)), dim3(256)};
  visit_activations(p.x.type, [&](auto element) {
    launch("clearing of rows", clear_rows_kernel<decltype(element)>, grid, stream, p);
  });
}

}  // namespace sluice::kernels::cuda

// Tokens with their columns in the order of a matrix, or each in that of the matrices of its group. A thread moves one element of a
// row; what a warp reads lies anywhere in the row, which is in the L1 or L2 by then. Bytes moved: every row in and out once, and four
// bytes of order per column.
#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/gemm/gemm_params.h"
#include "kernels/cuda/gemm/order_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// grid: (pieces of 256 columns, rows folded)
template <class T>
__global__ void __launch_bounds__(kThreads) order_columns_kernel(const OrderColumnsParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= p.x.dim) return;
  const int32_t from = p.order[i];
  for (int64_t row = blockIdx.y; row < p.x.n; row += gridDim.y)
    static_cast<T*>(p.out.data)[row * p.out.stride_n + i] =
        static_cast<const T*>(p.x.data)[row * p.x.stride_n + from];
}

// The last group that begins no later than the entry: those before it that begin there too have none.
__device__ __forceinline__ int64_t group_of(const OrderEntriesParams& p, int64_t entry) {
  int64_t low = 0, high = p.groups;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (p.begin[middle] <= entry ? low : high) = middle;
  }
  return low;
}

// grid: (pieces of 256 columns, entries folded)
template <class T>
__global__ void __launch_bounds__(kThreads) order_entries_kernel(const OrderEntriesParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= p.x.dim) return;
  for (int64_t entry = blockIdx.y; entry < p.out.n; entry += gridDim.y) {
    const int32_t* order = p.orders[group_of(p, entry)];
    const int64_t row = p.gather != nullptr ? p.gather[entry] : entry, from = order != nullptr ? order[i] : i;
    static_cast<T*>(p.out.data)[entry * p.out.stride_n + i] =
        static_cast<const T*>(p.x.data)[row * p.x.stride_n + from];
  }
}

Grid grid_of(int64_t dim, int64_t n) {
  const auto rows = static_cast<unsigned>(n < 32768 ? n : 32768);
  return {dim3(static_cast<unsigned>(ceil_div(dim, kThreads)), rows), dim3(kThreads)};
}

}  // namespace

void launch_order_entries(const OrderEntriesParams& p, Stream stream) {
  if (p.out.n == 0) return;
  const Grid grid = grid_of(p.x.dim, p.out.n);
  p.x.type == DType::F32 ? launch("order_entries", order_entries_kernel<float>, grid, stream, p)
                         : launch("order_entries", order_entries_kernel<bf16>, grid, stream, p);
}

void launch_order_columns(const OrderColumnsParams& p, Stream stream) {
  const Grid grid = grid_of(p.x.dim, p.x.n);
  p.x.type == DType::F32 ? launch("order_columns", order_columns_kernel<float>, grid, stream, p)
                         : launch("order_columns", order_columns_kernel<bf16>, grid, stream, p);
}

}  // namespace sluice::kernels::cuda

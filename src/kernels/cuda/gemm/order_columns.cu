// Tokens with their columns in the order of a matrix. A thread moves one element of a row; what a warp reads lies anywhere in the
// row, which is in the L1 or L2 by then. Bytes moved: every row in and out once, and four bytes of order per column.
#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/gemm/gemm_params.h"

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

}  // namespace

void launch_order_columns(const OrderColumnsParams& p, Stream stream) {
  const auto rows = static_cast<unsigned>(p.x.n < 32768 ? p.x.n : 32768);
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(p.x.dim, kThreads)), rows), dim3(kThreads)};
  p.x.type == DType::F32 ? launch("order_columns", order_columns_kernel<float>, grid, stream, p)
                         : launch("order_columns", order_columns_kernel<bf16>, grid, stream, p);
}

}  // namespace sluice::kernels::cuda

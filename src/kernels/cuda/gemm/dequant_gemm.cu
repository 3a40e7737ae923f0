// What grouped_gemm_sm90.cu multiplies, as bf16. Entries of a list in their order; rows of matrices of any type below each
// other. Where a number has two parts the second is what bf16 leaves over of it: of entries it lies behind all first parts,
// of matrices behind each row.
//
// A thread makes eight elements. Bytes: what is stored in, two per element and part out.
#include "kernels/cuda/common/dequantize.cuh"
#include "kernels/cuda/gemm/grouped/grouped_gemm_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// grid: (pieces of eight elements, entries folded)
template <class T>
__global__ void __launch_bounds__(kThreads) entries_kernel(const EntriesParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t column = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 8;
  if (column >= p.x.dim) return;
  auto* out = static_cast<bf16*>(p.out);
  for (int64_t entry = blockIdx.y; entry < p.entries; entry += gridDim.y) {
    const int64_t row = p.gather != nullptr ? p.gather[entry] : entry;
    float f[8];
    load8<true>(static_cast<const T*>(p.x.data) + row * p.x.stride_n + column, 8, f);
    *reinterpret_cast<uint4*>(out + entry * p.x.dim + column) = pack8(f);
    if constexpr (sizeof(T) == sizeof(float)) {
      leave_rest(f);
      *reinterpret_cast<uint4*>(out + (p.entries + entry) * p.x.dim + column) = pack8(f);
    }
  }
}

// grid: (pieces of a row, rows folded, matrices)
template <class Type, int Parts>
__global__ void __launch_bounds__(kThreads) dequant_gemm_kernel(const DequantGemmParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t matrix = blockIdx.z, rows = p.source.rows, width = panel_width(p.source.cols);
  const int64_t k = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 8;
  if (k >= width || (p.begin != nullptr && p.begin[matrix] == p.begin[matrix + 1])) return;
  const auto* first = static_cast<const uint8_t*>(p.matrices != nullptr ? p.matrices[matrix] : p.source.data);
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    float f[8] = {};
    if (k < p.source.cols) Type::dequantize8(first + (p.first_row + row) * p.source.row_bytes, k, f);
    bf16* out = static_cast<bf16*>(p.out) + (matrix * rows + row) * Parts * width + k;
    *reinterpret_cast<uint4*>(out) = pack8(f);
    if constexpr (Parts == 2) {
      leave_rest(f);
      *reinterpret_cast<uint4*>(out + width) = pack8(f);
    }
  }
}

}  // namespace

void launch_entries(const EntriesParams& p, Stream stream) {
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(p.x.dim, 8 * kThreads)),
                       static_cast<unsigned>(p.entries < 32768 ? p.entries : 32768)),
                  dim3(kThreads)};
  visit_activations(
      p.x.type, [&](auto element) { launch("entries", entries_kernel<decltype(element)>, grid, stream, p); });
}

void launch_dequant_gemm(const DequantGemmParams& p, Stream stream) {
  const int64_t rows = p.source.rows;
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(panel_width(p.source.cols), 8 * kThreads)),
                       static_cast<unsigned>(rows < 32768 ? rows : 32768), static_cast<unsigned>(p.count)),
                  dim3(kThreads)};
  const bool known = visit_matrix(p.source, [&](auto type) {
    using Type = decltype(type);
    launch("panel", p.parts == 2 ? dequant_gemm_kernel<Type, 2> : dequant_gemm_kernel<Type, 1>, grid, stream,
           p);
  });
  check_launch(known ? cudaSuccess : cudaErrorInvalidValue, "panel of this type");
}

}  // namespace sluice::kernels::cuda

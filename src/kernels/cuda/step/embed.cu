// Rows of a stored matrix of any type as bf16: the token embedding, and whole panels for the large GEMMs.
// A thread decodes eight elements; bytes moved: the stored rows in, two bytes per element out.
#include "kernels/cuda/common/dequantize.cuh"
#include "kernels/cuda/gemm/gemm_params.h"
#include "kernels/cuda/step/token_params.h"

namespace sluice::kernels::cuda {
namespace {

struct RowsParams {
  Matrix source;
  const int32_t* ids;    // null: row r is row r
  const int32_t* slots;  // ids below zero: ~id is the slot that holds the id
  void* out;
  DType type;                    // of out
  int64_t count, stride, width;  // rows; elements between rows of out; elements to write, zero beyond cols
};

template <class Type, class T>
__global__ void __launch_bounds__(256) rows_kernel(const RowsParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t k = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 8;
  if (k >= p.width) return;
  const bool vector = p.stride % 8 == 0 && p.width - k >= 8 && reinterpret_cast<uintptr_t>(p.out) % 16 == 0;
  for (int64_t row = blockIdx.y; row < p.count; row += gridDim.y) {
    int64_t from = p.ids != nullptr ? p.ids[row] : row;
    if (from < 0) from = p.slots[~from];
    const uint8_t* source = static_cast<const uint8_t*>(p.source.data) + from * p.source.row_bytes;
    float f[8];
    if (k + 8 <= p.source.cols || p.source.type == DType::BF16) {
      Type::dequantize8(source, k, f);
    } else {
      // Plain types only: block types have whole blocks.
#pragma unroll
      for (int j = 0; j < 8; ++j) f[j] = 0.0f;
      for (int j = 0; j < 8 && k + j < p.source.cols; ++j) {
        if (p.source.type == DType::F32) f[j] = reinterpret_cast<const float*>(source)[k + j];
        if (p.source.type == DType::F16) f[j] = half_at(source + 2 * (k + j));
        if (p.source.type == DType::F8_E4M3) {
          float whole[8];
          uint8_t eight[8] = {source[k + j]};
          Decoder<DType::F8_E4M3>::dequantize8(eight, 0, whole);
          f[j] = whole[0];
        }
      }
    }
    T* out = static_cast<T*>(p.out) + row * p.stride + k;
    if (vector) {
      store8<true>(out, 8, f);
    } else {
      store8<false>(out, p.width - k, f);
    }
  }
}

void launch_rows(const RowsParams& p, Stream stream) {
  if (p.count == 0) return;
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(ceil_div(p.width, 8), 256)),
                       static_cast<unsigned>(p.count < 32768 ? p.count : 32768)),
                  dim3(256)};
  const auto run = [&](auto type) {
    visit_activations(p.type, [&](auto element) {
      launch("rows", rows_kernel<decltype(type), decltype(element)>, grid, stream, p);
    });
  };
  const bool known =
      p.source.scales != nullptr ? visit_matrix(p.source, run) : visit_stored(p.source.type, run);
  check_launch(known ? cudaSuccess : cudaErrorInvalidValue, "rows of this type");
}

// Lets the next kernel start when the one in front has ended.
__global__ void __launch_bounds__(32) settle_kernel() {
  wait_for_producer();
  allow_dependents();
}

}  // namespace

void launch_settle(Stream stream) {
  launch("settle", settle_kernel, Grid{dim3(1), dim3(32)}, stream);
}

void launch_embed(const EmbedParams& p, Stream stream) {
  launch_rows({p.table, p.ids, p.slots, p.out.data, p.out.type, p.out.n, p.out.stride_n, p.out.dim}, stream);
}

void launch_dequantize(const DequantizeParams& p, Stream stream) {
  launch_rows({p.source, nullptr, nullptr, p.out, DType::BF16, p.source.rows, p.stride, p.stride}, stream);
  launch_settle(stream);
}

}  // namespace sluice::kernels::cuda

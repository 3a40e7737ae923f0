// Operations of the reference that only move rows.
#include "kernels/host.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/ref_backend.h"
#include "tensor/blocks.h"

namespace sluice::kernels {

std::unique_ptr<Backend> make_ref_backend() {
  return std::make_unique<RefBackend>();
}

Memory RefBackend::allocate(DType dtype, std::initializer_list<int64_t> shape) {
  return allocate_host(dtype, shape);
}

Memory RefBackend::upload(TensorView host) {
  return upload_to_host(host);
}

void RefBackend::download(TensorView out, TensorView x) {
  copy_rows(out, x);
}

void RefBackend::embed(TensorView out, const Weight& table, std::span<const int32_t> ids) {
  SLUICE_CHECK_EQ(out.dim(0), static_cast<int64_t>(ids.size()));
  SLUICE_CHECK_EQ(out.dim(1), table.cols);
  for (size_t i = 0; i < ids.size(); ++i) {
    const WeightRow row = weight_row(table, ids[i]);
    dequantize_row(row.type, row.data, out.at<float>(static_cast<int64_t>(i)), table.cols);
  }
}

void RefBackend::gather_rows(TensorView out, TensorView x, std::span<const int32_t> rows) {
  gather_host_rows(out, x, rows);
}

void RefBackend::copy_blocks(const PagedKv& kv, std::span<const std::pair<BlockId, BlockId>> moves) {
  copy_kv_blocks(kv, moves);
}

}  // namespace sluice::kernels

// Plans of the fast attention, and the choice among its units.
#include <flashinfer/attention/scheduler.cuh>

#include <algorithm>

#include "kernels/cuda/attention/flash/flash.h"
#include "kernels/cuda/common/device.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kBlocksPerProcessor = 2;  // what FlashInfer's planner counts on

int processors_of_device() {
  int device = 0, count = 0;
  check_launch(cudaGetDevice(&device), "device query");
  check_launch(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "device query");
  return count;
}

}  // namespace

bool flash_fits(const AttentionParams& p) {
  const bool size = p.k.dim == p.v.dim && (p.k.dim == 64 || p.k.dim == 128 || p.k.dim == 256);
  const bool type = p.k.type == DType::BF16 || (p.k.type == DType::F8_E4M3 && p.k.dim == 128);
  const bool kind = type && p.v.type == p.k.type && p.sinks == nullptr && p.alibi == nullptr;
  const int64_t piece = p.k.type == DType::BF16 ? 8 : 16;  // elements of 16 bytes
  const bool contiguous = p.out.stride_h == p.v.dim && p.out.stride_n == p.v.dim * p.q.heads;
  const bool aligned = aligned16(p.q.data) && aligned16(p.out.data) && aligned16(p.k.data) &&
                       aligned16(p.v.data) && p.q.stride_n % 8 == 0 && p.q.stride_h % 8 == 0 &&
                       p.k.stride_slot % piece == 0 && p.v.stride_slot % piece == 0 &&
                       p.k.stride_head % piece == 0 && p.v.stride_head % piece == 0;
  return size && kind && contiguous && aligned && p.q.n * p.q.stride_n < (int64_t{1} << 31);
}

size_t flash_partial_bytes(const FlashShape& shape, int processors) {
  const size_t tile = shape.dim < 256 ? 128 : 64;
  const size_t rows =
      static_cast<size_t>(processors) * kBlocksPerProcessor * (shape.heads / shape.kv_heads) * tile;
  return rows * (static_cast<size_t>(shape.dim) + 1) * sizeof(float) + 4096;
}

FlashPlan make_flash_plan(const FlashWorkspace& workspace, const FlashShape& shape, const FlashBatch& batch,
                          bool replayable, Stream stream) {
  static const int processors = processors_of_device();
  bool one_each = true;
  for (int s = 0; s < batch.sequences; ++s)
    one_each = one_each && batch.query_begin[s + 1] - batch.query_begin[s] == 1;
  // With about two blocks for every multiprocessor already, splitting contexts costs more than it brings. A
  // plan without split has a grid that depends on the batch alone, so it needs no padding to be replayable.
  const bool enough =
      int64_t{batch.sequences} * shape.kv_heads * 100 >= int64_t{processors} * kBlocksPerProcessor * 95;
  const bool split = replayable ? !enough : !(enough && one_each);
  flashinfer::PrefillPlanInfo info;
  check_launch(flashinfer::PrefillPlan<int32_t>(
                   workspace.partial, workspace.partial_bytes, workspace.schedule, workspace.staging,
                   workspace.schedule_bytes, info, const_cast<int32_t*>(batch.query_begin),
                   const_cast<int32_t*>(batch.row_begin), static_cast<uint32_t>(batch.tokens),
                   static_cast<uint32_t>(batch.sequences), static_cast<uint32_t>(shape.heads),
                   static_cast<uint32_t>(shape.kv_heads), static_cast<uint32_t>(shape.dim),
                   static_cast<uint32_t>(shape.dim), static_cast<uint32_t>(shape.block_size),
                   replayable && split, sizeof(bf16), shape.window > 0 ? shape.window - 1 : -1, -1, !split, 0,
                   one_each ? 1 : 0, stream, static_cast<uint32_t>(shape.cache_bytes)),
               "flash attention plan");
  FlashPlan plan;
  const auto fields = info.ToVector();
  check_launch(fields.size() == 15 ? cudaSuccess : cudaErrorUnknown, "flash attention plan");
  std::copy(fields.begin(), fields.end(), plan.fields);
  return plan;
}

void launch_flash(const FlashParams& p, Stream stream) {
  if (p.attention.k.type == DType::F8_E4M3) return launch_flash_128_fp8(p, stream);
  if (p.attention.k.dim == 64) return launch_flash_64(p, stream);
  if (p.attention.k.dim == 128) return launch_flash_128(p, stream);
  launch_flash_256(p, stream);
}

}  // namespace sluice::kernels::cuda

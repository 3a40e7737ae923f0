// Positions of tokens, and keys and values on their way into the KV cache and within it.
#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/attention/attention_dispatch.h"
#include "kernels/cuda/common/views.h"

namespace sluice::kernels::cuda {

// Rows are chosen here and staged like positions, so that a recorded step replays with the rows of its own sequences.
void AttentionDispatch::rope_angles(TensorView angles, const RaggedBatch& batch, const RopeTable& table) {
  SLUICE_CHECK(angles.dtype == DType::F32 && angles.is_contiguous() && angles.rank == 3);
  AnglesParams p = blank<AnglesParams>();
  p.angles = static_cast<float*>(angles.data);
  p.positions = batch_of(batch).positions;
  p.inverse_frequency = static_cast<const float*>(table.inverse_frequency.data);
  p.n = angles.dim(0);
  p.pairs = angles.dim(1);
  p.magnitude = table.magnitude;
  p.magnitude_beyond = table.magnitude_beyond;
  SLUICE_CHECK_EQ(p.n, batch_.tokens);
  SLUICE_CHECK_EQ(table.pairs(), p.pairs);
  if (!batch.rope_positions.empty()) {
    std::vector<int32_t> sections;
    for (int64_t pair = 0; pair < p.pairs; ++pair) sections.push_back(table.sections.of(pair));
    p.positions = step_.put(kTokenBuffer, batch.rope_positions);
    p.sections = step_.put(kTokenBuffer, sections);
  }
  if (table.rows() > 1) {
    std::vector<int32_t> rows;
    for (int64_t i = 0; i < p.n; ++i) rows.push_back(static_cast<int32_t>(table.row_of(batch, i)));
    p.rows = step_.put(kTokenBuffer, rows);
  }
  step_.issue(launch_angles, p);
}

namespace {

RopeParams rope_params(const TensorView& x, const TensorView& angles, RopeStyle style) {
  SLUICE_CHECK(angles.dtype == DType::F32 && angles.stride[1] == 2 && angles.stride[2] == 1);
  RopeParams p = blank<RopeParams>();
  p.x = view_of(x);
  p.angles = static_cast<const float*>(angles.data);
  p.pairs = angles.dim(1);
  p.angle_stride = angles.stride[0];
  p.interleaved = style == RopeStyle::GptJ ? 1 : 0;
  SLUICE_CHECK_LE(2 * p.pairs, p.x.dim);
  return p;
}

WriteKvParams write_params(const PagedKv& kv, const TensorView& k, const TensorView& v,
                           const TableView& table) {
  WriteKvParams p = blank<WriteKvParams>();
  p.k = cache_of(kv.k, kv.k_scales);
  p.key = view_of(k);
  if (!v.empty()) {
    p.v = cache_of(kv.v, kv.v_scales);
    p.value = view_of(v);
  }
  p.table = table;
  return p;
}

}  // namespace

void AttentionDispatch::rope(TensorView x, TensorView angles, RopeStyle style) {
  step_.issue(launch_rope, rope_params(x, angles, style));
}

void AttentionDispatch::write_kv(const PagedKv& kv, TensorView k, TensorView v, const RaggedBatch& batch) {
  step_.issue(launch_write_kv, write_params(kv, k, v, table_of(batch, kv).view));
}

bool AttentionDispatch::rope_write_kv(const PagedKv& kv, const QkvHeads& x, TensorView angles,
                                      RopeStyle style, const RaggedBatch& batch, const NormedHeads* norm) {
  RopeWriteParams p = blank<RopeWriteParams>();
  if (norm != nullptr) {
    p.q_gain = floats_of(norm->q_gain, x.q.dim(2));
    p.k_gain = floats_of(norm->k_gain, x.k.dim(2));
    p.eps = norm->eps;
    p.normed = 1;
  }
  p.rope = rope_params(x.q, angles, style);
  p.write = write_params(kv, x.k, x.v, table_of(batch, kv).view);
  if (!rope_write_fits(p)) return false;
  if (const std::optional<UnitsRopeParams> gemm = step_.take_gemm(p)) {
    step_.issue(launch_units_rope, *gemm);
  } else {
    step_.issue(launch_rope_write, p);
  }
  return true;
}

void AttentionDispatch::copy_blocks_of(const TensorView& view, std::span<const int32_t> moves) {
  constexpr size_t kMost = 2 * 32768;  // numbers of one launch
  if (view.empty()) return;
  SLUICE_CHECK_EQ(view.stride[0] * view.dim(0), view.elements());  // a block lies together, in any order
  for (size_t first = 0; first < moves.size(); first += kMost) {
    const size_t count = std::min(kMost, moves.size() - first);
    CopyBlocksParams p = blank<CopyBlocksParams>();
    p.data = view.data;
    p.block_bytes = view.bytes() / view.dim(0);
    p.moves = step_.put(kTokenBuffer, moves.subspan(first, count));
    p.count = static_cast<int64_t>(count / 2);
    step_.issue(launch_copy_blocks, p);
  }
}

void AttentionDispatch::copy_blocks(const PagedKv& kv, std::span<const std::pair<BlockId, BlockId>> moves) {
  std::vector<int32_t> flat;
  for (const auto& [from, to] : moves) {
    flat.push_back(from.value);
    flat.push_back(to.value);
  }
  copy_blocks_of(kv.k, flat);
  if (kv.v.data != kv.k.data) copy_blocks_of(kv.v, flat);
  if (kv.k.dtype != DType::I8) return;
  copy_blocks_of(kv.k_scales, flat);
  if (kv.v_scales.data != kv.k_scales.data) copy_blocks_of(kv.v_scales, flat);
}

}  // namespace sluice::kernels::cuda

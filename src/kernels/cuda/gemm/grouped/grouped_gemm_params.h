// Many GEMMs in one launch, each group of rows with its own matrix.
#pragma once

#include "kernels/cuda/common/params.h"

namespace sluice::kernels::cuda {

// Any shape and weight type; also many GEMMs in one launch. Group g multiplies rows [begin[g], begin[g +
// 1]) of the list of tokens (all n, where begin is null) by its own matrix.
struct GroupedGemmParams {
  View out, x;                 // heads: x and out of group g start g * stride_h further on
  Matrix weight;               // data is null where `weights` is set
  const void* const* weights;  // [groups] device pointers
  const float* const* biases;  // [groups] device pointers or null
  const float* bias;           // for all groups, or null
  const int32_t* begin;        // [groups + 1] or null
  const int32_t* gather;       // row of x for each entry of the list, or null: the entry itself
  int64_t groups;
};
void launch_grouped_gemm(const GroupedGemmParams&, Stream);

// The entries of a list in their order, as bf16 [parts, entries, dim]: f32 ones in two parts, the second of what the first
// leaves over.
struct EntriesParams {
  View x;  // dim and stride_n are multiples of eight
  void* out;
  const int32_t* gather;  // row of x for each entry, or null: the entry itself
  int64_t entries;
};
void launch_entries(const EntriesParams&, Stream);

// Rows [first_row, first_row + source.rows) of `count` matrices as bf16, [count, rows, parts, panel_width(cols)]: columns
// from `cols` on are zero, and a second part is what the first leaves over.
struct DequantGemmParams {
  Matrix source;                // shape of each; data where there is one
  const void* const* matrices;  // [count] device pointers, or null: one
  const int32_t* begin;         // [count + 1] or null; a matrix with equal numbers is left out
  void* out;
  int64_t first_row, count;
  int32_t parts;
};
constexpr int64_t panel_width(int64_t cols) {
  return (cols + 63) / 64 * 64;
}
void launch_dequant_gemm(const DequantGemmParams&, Stream);

// out[e] = x[e] · W_gᵀ + bias_g for the entries e of each group g, [begin[g], begin[g + 1]).
// Gated: out[e] = silu(gate) * up of the halves of that, [entries, rows / 2]; bf16 and no panels.
// By head: every group has all entries, which lie x_group elements further on for the next group, and its results
// out_group; bf16, no panels, whole steps of 64 columns.
struct GroupedGemmSm90Params {
  View out;                    // [entries, rows]
  const void* x;               // [entries, cols] as of launch_entries(): two parts where out is f32, else one
  Matrix shape;                // of every matrix; data is null
  const void* weights;         // [groups] of write_expert_map(), on the device; or null:
  const void* panel;           // of launch_dequant_gemm()
  const float* const* biases;  // [groups] device pointers or null
  const float* bias;           // that of a single group, or null
  const int32_t* begin;        // [groups + 1], or null: one group
  int64_t bias_row;            // that of the first row of `shape`
  int64_t x_stride, x_group, out_group;  // by head; else 0
  int32_t groups, panel_parts, gated;
  // Early: `begin` and `counter` were written in front of another grouped GEMM of this kind.
  int32_t early;
  int32_t* counter;  // zero; a launch of its own for each. Or null
};
inline constexpr size_t kExpertMapBytes = 128;
inline constexpr int kExpertBoxRows = 32;              // that a map brings at a time
void write_expert_map(std::byte* out, const Matrix&);  // of a bf16 matrix
bool experts_fit(const Matrix& shape, int64_t groups, int64_t entries);
void launch_grouped_gemm_sm90(const GroupedGemmSm90Params&, Stream);

}  // namespace sluice::kernels::cuda

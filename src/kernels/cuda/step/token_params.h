// Token-wise operations, and moves of rows and bytes.
#pragma once

#include "kernels/cuda/common/params.h"
#include "kernels/cuda/gemm/gemm_params.h"
#include "kernels/cuda/moe/moe_params.h"

namespace sluice::kernels::cuda {

enum class NormKind : int32_t { Rms, Layer };

struct NormParams {
  View out, x;
  View add;           // data null: nothing is added; else x += scale * add is stored first, and normed
  const float* gain;  // [dim] or null
  const float* bias;  // [dim] or null
  float eps, scale;
  NormKind kind;
  int32_t fixed_order;  // sums do not depend on n
  CombineParams mixed;  // x.data not null: what is added is made by it first, and stored
  // Where norm_rounds() says so: the result as launch_quantize_tokens() makes it, besides.
  void* rounded;          // [n, dim]; null: not wanted
  float* rounded_scales;  // [n]
  NormFactors factors;    // squares not null: out holds x times the gain, for a GEMM that takes over the rest
};
void launch_norm(const NormParams&, Stream);
// Whether what is added may be such a sum.
bool norm_mixes(const NormParams&);
// Whether the norm rounds its result too.
bool norm_rounds(const NormParams&);

// sum = sum_scale * (sum + scale * rms_norm(branch)), rounded once; then out = rms_norm(sum), unless out.data is null.
struct AddNormedParams {
  View out, sum, branch;
  const float* branch_gain;  // [dim] or null
  const float* gain;         // [dim] or null
  float branch_eps, eps, scale, sum_scale;
};
void launch_add_normed(const AddNormedParams&, Stream);
// Whether launch_add_normed takes it.
bool adds_normed(const AddNormedParams&);

enum class Pointwise : int32_t { Copy, Add, AddBias, Scale, Softcap, Clamp, Activate, Gated, GateRows };

struct PointwiseParams {
  View out, a;
  View b;  // Add: other operand (stride_n 0: one row for all); Gated: the up half; GateRows: [n, 1]
  const float* bias;  // AddBias: f32 [dim]
  float factor;  // Add: scale of b; Scale, Softcap, Clamp: their number; Gated: limit of both halves, 0: none
  Pointwise operation;
  int32_t activation;  // kernels::Activation
};
void launch_pointwise(const PointwiseParams&, Stream);

struct EmbedParams {
  View out;
  Matrix table;
  const int32_t* ids;    // [n]; the rows to take; below zero: ~ the slot that holds it
  const int32_t* slots;  // or null: no id is below zero
};
void launch_embed(const EmbedParams&, Stream);

struct GatherParams {
  View out, x;
  const int32_t* rows;
};
void launch_gather(const GatherParams&, Stream);

// From one type to the other; also copies.
struct ConvertParams {
  View out, x;
};
void launch_convert(const ConvertParams&, Stream);

// Pieces of device memory to, or from, one run of bytes.
struct MovePiecesParams {
  const void* pieces;  // int64 [count, 3]: address, first byte in `packed`, bytes
  void* packed;
  int64_t count;
  int32_t gather;  // 1: to `packed`
};
void launch_move_pieces(const MovePiecesParams&, Stream);
// Whole words to pinned host memory, without the copy engine.
void launch_store_to_host(void* pinned, const void* data, size_t bytes, Stream);

}  // namespace sluice::kernels::cuda

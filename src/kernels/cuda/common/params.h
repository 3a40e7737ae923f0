// What the host hands to each kernel: plain structs, and one function per kernel family that launches it on a
// stream. Structs are filled through blank<>(), so that equal arguments have equal bytes: a step is
// recognised by them.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cuda/gemm/quantized/units.h"

struct CUstream_st;

namespace sluice::kernels::cuda {

using Stream = CUstream_st*;

template <class P>
P blank() {
  P params;
  std::memset(static_cast<void*>(&params), 0, sizeof params);
  return params;
}

// Activations [n, heads, dim] with the last dimension contiguous, strides in elements. The views of one operation have
// the same type unless said otherwise; where a kernel takes bf16 only, its ..._fits says so.
struct View {
  void* data;
  int64_t n, heads, dim;
  int64_t stride_n, stride_h;
  DType type;  // BF16 or F32
};
// Whether every row is whole pieces of eight elements, each at a multiple of 16 bytes.
inline bool aligned_tokens(const View& x) {
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride_n % 8 == 0 && x.dim % 8 == 0;
}

// -- token-wise
enum class NormKind : int32_t { Rms, Layer };

struct NormParams {
  View out, x;
  View add;           // data null: nothing is added; else x += scale * add is stored first, and normed
  const float* gain;  // [dim] or null
  const float* bias;  // [dim] or null
  float eps, scale;
  NormKind kind;
  int32_t fixed_order;  // sums do not depend on n
};
void launch_norm(const NormParams&, Stream);

enum class Pointwise : int32_t { Copy, Add, AddBias, Scale, Softcap, Clamp, Activate, Gated, GateRows };

struct PointwiseParams {
  View out, a;
  View b;  // Add: other operand (stride_n 0: one row for all); Gated: the up half; GateRows: [n, 1]
  const float* bias;  // AddBias: f32 [dim]
  float factor;       // Add: scale of b; Scale, Softcap, Clamp: their number
  Pointwise operation;
  int32_t activation;  // kernels::Activation
};
void launch_pointwise(const PointwiseParams&, Stream);

// A stored matrix: `rows` rows of `row_bytes` bytes, of BF16 (padded with zeros to a multiple of 8 columns),
// a block type as it is stored or in units (row_bytes: a sixteenth of a row of units), or scaled fp8: F8_E4M3 with `scales`,
// where a row starts with kFp8Header bytes whose first four hold its scale again as f32.
struct Matrix {
  const void* data;
  int64_t rows, cols, row_bytes;
  const float* scales;  // [rows] of scaled fp8, else null
  DType type;
  Units units;
};
inline constexpr int64_t kFp8Header = 128;
inline constexpr float kFp8Largest = 448.0f;

// Rows of a plain type to scaled fp8: scale = largest magnitude / 448, elements rounded to nearest even.
struct QuantizeRowsParams {
  Matrix source;
  void* out;      // rows of `out_row_bytes`, header first
  float* scales;  // [rows]
  int64_t out_row_bytes;
};
void launch_quantize_rows(const QuantizeRowsParams&, Stream);

// The same for tokens, x[n, dim]; rows of `out_row_bytes` without header.
struct QuantizeTokensParams {
  View x;
  void* out;
  float* scales;  // [n]
  int64_t out_row_bytes;
};
void launch_quantize_tokens(const QuantizeTokensParams&, Stream);

struct EmbedParams {
  View out;
  Matrix table;
  const int32_t* ids;    // [n]; the rows to take; below zero: ~ the slot that holds it
  const int32_t* slots;  // or null: no id is below zero
};
void launch_embed(const EmbedParams&, Stream);

// Rows of any weight type to bf16, `stride` elements apart; columns up to `stride` become zero.
struct DequantizeParams {
  Matrix source;
  void* out;
  int64_t stride;
};
void launch_dequantize(const DequantizeParams&, Stream);

struct GatherParams {
  View out, x;
  const int32_t* rows;
};
void launch_gather(const GatherParams&, Stream);

struct ArgmaxParams {
  View x;
  int32_t* ids;
  unsigned long long* keys;  // [n] zero before and after
};
void launch_argmax(const ArgmaxParams&, Stream);

// One token per row of logits; kernels/sample.h has the structs.
struct SampleParams {
  View logits;
  const void* rows;  // SampleArgs [n]
  void* edits;       // LogitAdjustment, of all rows; what they hold afterwards is undefined
  void* out;         // SampledToken [n]
  int32_t* slots;
};
void launch_sample(const SampleParams&, Stream);

// From one type to the other; also copies.
struct ConvertParams {
  View out, x;
};
void launch_convert(const ConvertParams&, Stream);

// f32 rows as two bf16 numbers each: rows [0, n) of `out` are x rounded, rows [n, 2 n) what that leaves over, rounded.
struct SplitParams {
  View x;
  void* out;  // [2 n, dim]
};
void launch_split(const SplitParams&, Stream);

// out[i] = parts[i] + parts[n + i] + bias; f32.
struct JoinParams {
  View out;
  const float* parts;  // [2 n, dim]
  const float* bias;   // [dim] or null
};
void launch_join(const JoinParams&, Stream);

// Reads memory and does nothing with it: leaves the L2 full of lines that need no writing back.
void launch_read(const void* data, size_t bytes, Stream);

// -- position and cache
struct AnglesParams {
  float* angles;                   // [n, pairs, 2]
  const int32_t* positions;        // [n]
  const int32_t* rows;             // [n] of the frequencies; null: row 0 for all
  const float* inverse_frequency;  // [rows, pairs]
  int64_t n, pairs;
  float magnitude, magnitude_beyond;  // of row 0, of the others
};
void launch_angles(const AnglesParams&, Stream);

struct RopeParams {
  View x;
  const float* angles;  // [n, pairs, 2]
  int64_t pairs;
  int64_t angle_stride;
  int32_t interleaved;
};
void launch_rope(const RopeParams&, Stream);

// Where the tokens of a step lie: the block of (sequence s, position p) is blocks[row_begin[s] + p /
// block_size].
struct TableView {
  const int32_t* row_begin;  // [sequences + 1]
  const int32_t* blocks;
  const int32_t* positions;  // [n]
  const int32_t* sequence;   // [n]
  int32_t block_size;
};

// A layer's keys or values: [blocks, block_size, kv_heads, dim], strides in elements. F8_E4M3 has no scales: 448 is the
// largest it keeps.
struct CacheView {
  void* data;
  float* scales;  // I8 only
  int64_t stride_block, stride_slot, stride_head;
  int64_t scale_stride_block, scale_stride_slot;
  int64_t blocks, dim;
  DType type;
};

struct WriteKvParams {
  CacheView k, v;  // v.data null: only k is stored
  View key, value;
  TableView table;
};
void launch_write_kv(const WriteKvParams&, Stream);

// Rotates q in place; rotates k and stores it with v. REQUIRES: rope_write_fits(params).
struct RopeWriteParams {
  RopeParams rope;  // x: q
  WriteKvParams write;
};
bool rope_write_fits(const RopeWriteParams&);
void launch_rope_write(const RopeWriteParams&, Stream);

struct CopyBlocksParams {
  void* data;
  int64_t block_bytes;
  const int32_t* moves;  // [count, 2] from, to
  int64_t count;
};
void launch_copy_blocks(const CopyBlocksParams&, Stream);

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

// -- attention
struct AttentionParams {
  View out, q;
  CacheView k, v;
  TableView table;
  const float* sinks;  // [heads] or null
  const float* alibi;  // [heads] or null
  int64_t kv_heads;
  float scale, softcap;
  int32_t window;
  int32_t chunked;  // a token at p sees [p - p % window, p] instead
};
void launch_attention(const AttentionParams&, Stream);

// -- GEMMs

// out[n, rows] = x[n, cols] · weightᵀ + bias
struct GemmParams {
  View out, x;
  Matrix weight;
  const float* bias;
  int32_t fixed_order;  // launch_gemm_small_m only: sums do not depend on n
};
inline constexpr int64_t kLongMatrix = 65536;  // rows: as many as a vocabulary has words
// Most tokens that launch_gemm_small_m takes with a fixed order.
inline constexpr int64_t kFixedTokens = 32, kFixedTokensFp8 = 16;
// One token to eight, or one with bf16 and scaled fp8; any weight type. REQUIRES: gemv_fits(params).
bool gemv_fits(const GemmParams&);
bool gemv_at_once(
    const GemmParams&);  // whether all rows can be on their way at a time, half a row or more of each
void launch_gemv(const GemmParams&, Stream);

// Up to 32 tokens, bf16 or scaled fp8. REQUIRES: gemm_small_m_fits(params).
bool gemm_small_m_fits(const GemmParams&);
void launch_gemm_small_m(const GemmParams&, Stream);

// out[n, inner] = activation(gate) * up, where gate and up are the halves of x · weightᵀ + bias. The same
// conditions as above, for the whole GEMM; the first for bf16 and scaled fp8 only.
struct GatedGemmParams {
  GemmParams gemm;  // out is [n, inner], weight [2 * inner, cols]
  int32_t activation;
};
void launch_gemv_gated(const GatedGemmParams&, Stream);
void launch_gemm_small_m_gated(const GatedGemmParams&, Stream);

// Many tokens, bf16, no bias, gated with Silu: out [n, rows / 2]. REQUIRES: gemm_swiglu_fits(params).
bool gemm_swiglu_fits(const GemmParams&);
bool gemm_swiglu_busy(const GemmParams&);  // whether there are rows enough for most multiprocessors
void launch_gemm_swiglu(const GemmParams&, Stream);

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
  int32_t groups, panel_parts;
};
inline constexpr size_t kExpertMapBytes = 128;
void write_expert_map(std::byte* out, const Matrix&);  // of a bf16 matrix
bool experts_fit(const Matrix& shape, int64_t groups, int64_t entries);
void launch_grouped_gemm_sm90(const GroupedGemmSm90Params&, Stream);

// -- mixtures
// A whole feed-forward for few tokens. Matrices and biases: [experts] device pointers, biases or null.
struct FewExpertsParams {
  View out, x;
  void* active;     // [n * used, inner] of x's type
  Matrix up, down;  // shapes; data is null
  const void *const *up_matrices, *const *down_matrices;
  const float *const *up_biases, *const *down_biases;
  const int32_t* ids;    // [n, used]
  const float* weights;  // [n, used]
  int64_t ids_stride, weights_stride;
  int32_t used, activation;
  int32_t gated, weigh_inputs;
};
bool few_experts_fit(const FewExpertsParams&);
void launch_few_experts(const FewExpertsParams&, Stream);

struct RouteParams {
  int32_t* ids;    // [n, used]
  float* weights;  // [n, used]
  View logits;
  int64_t ids_stride, weights_stride;
  const float* choice_bias;
  int32_t experts, used, groups, groups_used, group_best;
  float scale, margin;
  int32_t score;  // Routing::Score
  int32_t normalize;
};
void launch_route(const RouteParams&, Stream);

// Sorts the n * used (token, slot) pairs by expert, keeping their order within an expert.
struct SortParams {
  const int32_t* ids;  // [n, used]
  int64_t ids_stride;
  int64_t n;
  int32_t used, experts;
  int32_t* begin;   // [experts + 1]
  int32_t* tokens;  // [n * used] token of each sorted entry
  int32_t* place;   // [n * used] where pair (token, slot) went
};
void launch_sort(const SortParams&, Stream);

// out[place[t, slot]] = weights[t, slot] · x[t]
struct WeighParams {
  View out, x;
  const float* weights;
  int64_t weights_stride;
  const int32_t* place;
  int32_t used;
};
void launch_weigh(const WeighParams&, Stream);

// out[t] = Σ weights[t, slot] · x[place[t, slot]], in slot order
struct CombineParams {
  View out, x;
  const float* weights;  // null: 1
  int64_t weights_stride;
  const int32_t* place;
  int32_t used;
};
void launch_combine(const CombineParams&, Stream);

}  // namespace sluice::kernels::cuda

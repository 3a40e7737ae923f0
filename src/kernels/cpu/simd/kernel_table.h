// What one instruction-set level offers: plain functions over plain memory, chosen once at start. The
// arguments know nothing of threads, pages or parts; the back-end cuts the work, so a function is called by
// one thread at a time with its own piece. No level's result depends on how the work was cut.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "tensor/dtype.h"

namespace sluice::kernels::cpu {

// 32 activations as int8: x ≈ scale * quant. GEMMs with block types use these: the error of one activation
// is at most scale / 2, that is 1/254 of the largest magnitude among the 32.
struct ActivationBlock {
  int8_t quants[32];
  float scale;
  float sum;           // scale * sum of quants
  float half_sums[2];  // the same over each 16
};

// 32 activations as sums of two bf16, for levels that multiply bf16 only: x ≈ high + low to within 2^-17 |x|.
struct SplitBlock {
  uint16_t high[32];
  uint16_t low[32];
};

// Integer scales of the two 16-element halves of a block, for four rows.
struct HalfScales {
  int32_t low[4];
  int32_t high[4];
};

// out[token][row] = x[token] · weights[row] (+ bias[row]) for rows [0, rows) and tokens [0, tokens).
struct Gemm {
  DType type;
  const uint8_t* weights;  // row 0; rows follow each other
  int64_t rows;
  int64_t cols;
  int64_t tokens;
  const float* bias;  // of row 0, or null
  float* out;         // of token 0, row 0
  int64_t out_stride;
  const float* x;  // plain types: token 0
  int64_t x_stride;
  const ActivationBlock* blocks;  // block types: token 0; cols / 32 blocks per token
  const SplitBlock*
      split;  // BF16 where the table has split(): token 0; cols / 32 blocks, rounded up, per token
};

// Rows of keys or values of one head, gathered through the block table.
struct KvRows {
  DType type;
  const uint8_t* const* rows;
  const float* scales;  // I8: one per row
  int64_t count;
  int64_t width;
  // Keys of the first group of 32 that lie before row 0: groups begin at multiples of 32 positions, so that levels that sum
  // up by groups give the same bits whichever row is the first.
  int64_t before = 0;
};

// How raw products q · k become logits.
struct ScoreRule {
  float scale;
  float softcap;  // 0: none
  float slope;    // added per position
};

struct SoftmaxPart {
  float largest;
  float total;  // sum of exp(logit - largest)
};

// out[query][i] = sum over keys of weights[query][key] * values[key][i], in order of the keys. A query that
// does not see a key has weight 0 there.
struct WeightedSum {
  float* out;  // [queries, values.width]
  const float* weights;
  int64_t weight_stride;
  int64_t queries;
  KvRows values;
};

struct KernelTable {
  void (*gemm)(const Gemm&);
  void (*quantize)(ActivationBlock* out, const float* x, int64_t blocks);
  void (*split)(SplitBlock* out, const float* x, int64_t width);  // null where the level has no use for it

  void (*rms_norm)(float* out, const float* x, const float* gain, int64_t width, float eps);
  void (*layer_norm)(float* out, const float* x, const float* gain, const float* bias, int64_t width,
                     float eps);
  void (*add_scaled)(float* out, const float* a, const float* b, float b_scale, int64_t width);
  void (*multiply)(float* x, float factor, int64_t width);
  void (*softcap)(float* x, float cap, int64_t width);
  void (*clamp)(float* x, float limit, int64_t width);
  void (*activate)(float* out, const float* x, int64_t width, Activation activation);
  void (*gate)(float* out, const float* gate, const float* up, int64_t width, Activation activation);
  // Rotates one head; angles are {cos, sin} per pair.
  void (*rope)(float* head, const float* angles, int64_t pairs, RopeStyle style);

  // Multiplies each `block` columns of x by the orthonormal Hadamard matrix of that size, a power of two that divides the
  // width. out may be x.
  void (*rotate)(float* out, const float* x, int64_t width, int64_t block);

  int64_t
      attention_rows;  // queries of a head that attention takes at once, so that reading keys and values pays
  // Whether few queries have a chunk's keys and values brought into the second cache before they read them. Where computing takes
  // as long as memory does, what is asked for a few rows ahead comes beside it.
  bool attention_fetches;
  // One row to F16, BF16 or F32.
  void (*store_kv)(void* out, DType type, const float* x, int64_t width);
  // out[query][key] = queries[query] · keys[key]; out rows are `stride` apart.
  void (*scores)(float* out, int64_t stride, const float* const* queries, int64_t query_count,
                 const KvRows& keys);
  // In place: logits by the rule, then exp(logit - largest). `distance` is the key position of scores[0] less
  // the query's.
  SoftmaxPart (*softmax)(float* scores, int64_t count, const ScoreRule& rule, int64_t distance);
  void (*weighted_sum)(const WeightedSum&);
  // sum = sum * a + part * b
  void (*blend)(float* sum, float a, const float* part, float b, int64_t width);
};

}  // namespace sluice::kernels::cpu

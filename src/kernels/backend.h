// The engine's instruction set. kernels/ref gives each operation its meaning; every other back-end is held to
// it by the parity tests. A fused operation has a default body composed of the others; a back-end may
// override it.
//
// Views of activations have the back-end's activation type (f32 on CPUs) unless a comment says otherwise;
// their last dimension is contiguous, the others may be strided. n counts the tokens of a step, all sequences
// one after the other. A result for a token depends on that token's inputs alone, never on n or on its place
// in the batch.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "kernels/column_order.h"
#include "kernels/weight.h"
#include "tensor/tensor.h"

namespace sluice::kernels {

class AsyncDevice;

// Device memory (host memory on CPUs), freed with the last reference.
struct Memory {
  TensorView view;
  std::shared_ptr<void> owner;
};

inline constexpr int kRopeSections = 3;  // time, height and width

// Which tokens a step runs and where their context lies. Plain host memory, valid until the step has ended.
struct RaggedBatch {
  std::span<const int32_t> query_begin;  // [sequences + 1] first token of each sequence in the step
  std::span<const int32_t> positions;    // [n] position of each token in its sequence
  // Block tables, one per KV group (layers with the same window share a group): row s lists the blocks of
  // sequence s in order of position; entries of blocks already given back are -1 and are never read.
  struct BlockTable {
    std::span<const int32_t> blocks;  // [sequences, width]
    int width = 0;
  };
  std::span<const BlockTable> tables;
  // [n] length of the sequence that decides each token's rotary frequencies (see RopeTable); empty: no table of the step
  // has more than one row.
  std::span<const int32_t> rope_lengths{};
  // [n] the last position that each token sees, at least its own; empty: its own. Windows and chunks begin as they do for
  // its own.
  std::span<const int32_t> seen{};
  // [kRopeSections, n] positions that rotary angles are made of, by section of the pairs; empty: `positions` in each.
  std::span<const int32_t> rope_positions{};

  int64_t last_seen(int64_t token) const {
    return seen.empty() ? positions[static_cast<size_t>(token)] : seen[static_cast<size_t>(token)];
  }
  int64_t tokens() const { return static_cast<int64_t>(positions.size()); }
  int sequences() const { return static_cast<int>(query_begin.size()) - 1; }
};

// The KV memory of one layer. Position p of sequence s lies in block tables[table](s, p / block_size), slot
// p % block_size.
struct PagedKv {
  // F32, F16, BF16, F8_E4M3 (448 at most) or I8. In host memory, rows of I8 are rotated (kernels/rotation.h).
  TensorView k;         // [blocks, block_size, kv_heads, key_dim]
  TensorView v;         // [blocks, block_size, kv_heads, value_dim]; may alias k (latent attention)
  TensorView k_scales;  // I8 only: f32 [blocks, block_size, kv_heads]
  TensorView v_scales;  // I8 only: f32 [blocks, block_size, kv_heads]
  int table = 0;        // index into RaggedBatch::tables
  // Keys that positions are chosen by (chosen_attention.h), beside the others; empty: none.
  TensorView index{};         // [blocks, block_size, 1, dim]
  TensorView index_scales{};  // I8 only: f32 [blocks, block_size, 1]
};

// A step's new heads: q [n, heads, dim], k and v [n, kv_heads, dim].
struct QkvHeads {
  TensorView q, k, v;
};

struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;  // heads / kv_heads query heads share one kv head
  int key_dim = 0;
  int value_dim = 0;
  float scale = 1.0f;
  int window = 0;        // a query at p sees keys in (p - window, p]; 0: all of [0, p]
  bool chunked = false;  // it sees keys in [p - p % window, p] instead
  float softcap = 0.0f;  // score = cap * tanh(score / cap) where > 0
  TensorView sinks;      // optional, f32 [heads]: one more logit in each softmax, with no value
  TensorView alibi;      // optional, f32 [heads]: slope * (key position - query position) added to the score
};

enum class RopeStyle : uint8_t {
  NeoX,  // pairs (i, i + dims/2)
  GptJ,  // pairs (2i, 2i + 1)
};

// Which of a token's positions turns which pairs.
struct RopeSections {
  std::array<int32_t, kRopeSections> counts{};  // of pairs; all 0: every pair belongs to the first section
  bool interleaved = false;  // the sections take turns; false: they lie one behind the other

  int of(int64_t pair) const {
    if (interleaved) {
      const int64_t section = pair % kRopeSections;
      const bool inside = section > 0 && pair < int64_t{kRopeSections} * counts[static_cast<size_t>(section)];
      return inside ? static_cast<int>(section) : 0;
    }
    if (counts[0] == 0 || pair < counts[0]) return 0;
    return pair < int64_t{counts[0]} + counts[1] ? 1 : 2;
  }
};

// Rotary frequencies. A token takes row 0 where its sequence is no longer than `limit`; each longer length has a row of its
// own, and the last row serves all lengths beyond it.
struct RopeTable {
  TensorView inverse_frequency;  // f32 [rows, pairs]
  int limit = 0;
  float magnitude = 1.0f;         // factor on cos and sin, of row 0 ...
  float magnitude_beyond = 1.0f;  // ... and of the others
  RopeSections sections{};

  int64_t rows() const { return inverse_frequency.dim(0); }
  int64_t pairs() const { return inverse_frequency.dim(1); }
  // REQUIRES: the batch has lengths, or there is one row.
  int64_t row_of(const RaggedBatch& batch, int64_t token) const {
    if (rows() == 1) return 0;
    const int64_t beyond = batch.rope_lengths[static_cast<size_t>(token)] - int64_t{limit};
    return beyond <= 0 ? 0 : beyond < rows() ? beyond : rows() - 1;
  }
  int32_t position_of(const RaggedBatch& batch, int64_t token, int64_t pair) const {
    if (batch.rope_positions.empty()) return batch.positions[static_cast<size_t>(token)];
    return batch.rope_positions[static_cast<size_t>(sections.of(pair) * batch.tokens() + token)];
  }
};

enum class Activation : uint8_t {
  Silu,
  Gelu,  // erf
  GeluTanh,
  Relu,
  Relu2,      // relu(x)^2
  SwigluOai,  // gated only: gate = min(g, 7), up = clamp(u, -7, 7); gate * sigmoid(1.702 gate) * (up + 1)
  Elu,        // x where positive, else exp(x) - 1
  Sigmoid,
  Softplus,  // log(1 + exp(x))
  Identity
};

// How a mixture layer picks experts from router logits [n, experts].
struct Routing {
  enum class Score : uint8_t {
    Softmax,
    Sigmoid,
    SoftmaxOfTop,  // over the chosen only
    SparseMixer  // for each choice, over the logits l left that are near the best b: (b - l) / max(|l|, b) <= margin
  };
  Score score = Score::Softmax;
  int experts = 0;
  int used = 0;
  bool normalize = false;   // divide the chosen weights by their sum
  float scale = 1.0f;       // then multiply by this
  int groups = 1;           // experts lie in equal groups ...
  int groups_used = 1;      // ... of which the best are kept, ...
  int group_best = 2;       // ... ranked by the sum of this many of their best scores
  TensorView choice_bias;   // optional, f32 [experts]: added to the score for the choice, not for the weight
  TensorView weight_scale;  // optional, f32 [experts]: one more factor on the weight of each expert
  float margin = 0.0f;      // of SparseMixer, which has no groups and no bias
  int always = 0;  // experts [experts, experts + always) have slots behind the chosen ones of every token ...
  float always_weight = 1.0f;  // ... with this weight, times sigmoid(logits[experts]) where it is gated
  bool always_gated = false;
  int slots() const { return used + always; }
  int logits() const { return experts + (always_gated ? 1 : 0); }  // of a token
};

// One expert's feed-forward: down(activation(gate_up x)). gate_up stacks gate rows over up rows.
struct ExpertBank {
  std::vector<Weight> gate_up;  // [experts] each [2 * inner, dim], or [inner, dim] where not gated
  std::vector<Weight> down;     // [experts] each [dim, inner]
  // Number of the first of them, where the bank holds a range of a layer's experts. In host memory only.
  int first = 0;
  Activation activation = Activation::Silu;
  bool gated = true;
  bool weigh_inputs = false;  // a slot's weight multiplies what its expert reads instead of what it gives
  float limit = 0.0f;         // activation(gate) and up are clamped to [-limit, limit]; 0: not

  bool has(int32_t expert) const {
    return expert >= first && expert - first < static_cast<int64_t>(down.size());
  }
};

// A GEMM that is still to be made: x · weightᵀ.
struct DeferredMatmul {
  TensorView x;
  const Weight* weight;
};

// A stream of residuals and what is added to it: sum = sum_scale * (sum + b_scale * b). b may have one row for all n.
struct Residual {
  TensorView sum, b;
  float b_scale = 1.0f;
  float sum_scale = 1.0f;  // another than 1 in add_normed and add_normed_rms_norm alone
};
// Of an rms norm; gain f32 [dim], optional.
struct RmsGain {
  TensorView gain;
  float eps;
  // Once a matmul or matmul_gated has read the result nothing else does: it may make a part of the norm.
  bool for_next_matmul = false;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;  // "ref", "cpu neon+dotprod+i8mm", ...
  virtual DType activation_type() const { return DType::F32; }
  // Called before the weights of a model are prepared that makes large errors of those of rounding: a back-end with narrow
  // activations may keep wider ones from here on.
  virtual void expect_magnified_errors() {}
  // Whether shared experts are computed faster as experts of the bank that every token uses (Routing::always).
  virtual bool joins_shared_experts() const { return false; }
  // Whether PagedKv may be of this type.
  virtual bool supports_kv(DType type) const { return type != DType::F8_E4M3; }
  // The order of a block's rows and what their numbers stand for, by name: back-ends with the same name read each other's
  // blocks of PagedKv.
  virtual std::string_view kv_form(DType type) const {
    return type == DType::I8 ? "rotated-token-major" : "token-major";
  }
  // Of which steps that prompts are cut for should have a multiple of tokens, so that GEMMs with the matrices prepared so far
  // keep the whole device busy (even_step.h); 0: any number does.
  virtual int64_t even_step_tokens() const { return 0; }
  // Until the next call others compute on the same cores: threads that wait for it give them up.
  virtual void rest() {}
  // Not null where the back-end's device works beside the host.
  virtual AsyncDevice* async_device() { return nullptr; }

  // -- memory

  // Zeroed, contiguous.
  virtual Memory allocate(DType dtype, std::initializer_list<int64_t> shape) = 0;
  // For PagedKv, [blocks, block_size, kv_heads, dim]: block after block, within a block in the order that attention reads
  // fastest. It takes any other order too.
  virtual Memory allocate_kv(DType dtype, std::array<int64_t, 4> shape) {
    return allocate(dtype, {shape[0], shape[1], shape[2], shape[3]});
  }
  // Called once per matrix after loading; may repack or upload. The result replaces the weight.
  virtual Weight prepare(Weight weight) {
    return prepare_runs(std::move(weight), [](Weight run) { return run; });
  }
  // The output matrix of a model that multiplies with its embedding table, from the prepared table. Its logits need not be
  // as exact as the table's rows.
  virtual Weight prepare_tied(Weight table) { return table; }
  // A host vector (norm gains, biases, sinks), f32, or rows of activation type, for use in later calls.
  virtual Memory upload(TensorView host) = 0;
  // Copies to contiguous host memory and waits for it. out: f32.
  virtual void download(TensorView out, TensorView x) = 0;
  // Start of a step: makes the batch's arrays known to the device.
  virtual void begin(const RaggedBatch&) {}

  // -- token-wise

  // out[n, dim] = row ids[i] of the table, as activation type; an asynchronous device also takes ~slot for a token it
  // has sampled
  virtual void embed(TensorView out, const Weight& table, std::span<const int32_t> ids) = 0;
  // out[n, rows] = x[n, cols] · weight[rows, cols]ᵀ (+ bias)
  virtual void matmul(TensorView out, TensorView x, const Weight& weight) = 0;
  // out[n, h, rows] = x[n, h, cols] · weights[h][rows, cols]ᵀ, one matrix per head, with columns in the order of x
  virtual void matmul_heads(TensorView out, TensorView x, std::span<const Weight> weights) = 0;
  // x / rms(x) * gain over the last dimension, of [n, dim] or [n, heads, dim]; gain f32 [dim], optional.
  // out may be x.
  virtual void rms_norm(TensorView out, TensorView x, TensorView gain, float eps) = 0;
  // (x - mean) / deviation * gain + bias over the last dimension; gain and bias f32, each optional. out may
  // be x.
  virtual void layer_norm(TensorView out, TensorView x, TensorView gain, TensorView bias, float eps) = 0;
  // out = a + b_scale * b; out may be a. b may have one row for all n.
  virtual void add(TensorView out, TensorView a, TensorView b, float b_scale = 1.0f) = 0;
  // out = x, both [n, width] or [n, heads, width]
  virtual void copy(TensorView out, TensorView x) = 0;
  // x[i] *= activation(gate[i]), gate [n, 1]
  virtual void gate_rows(TensorView x, TensorView gate, Activation activation = Activation::Sigmoid) = 0;
  // x *= factor
  virtual void scale(TensorView x, float factor) = 0;
  // x = cap * tanh(x / cap)
  virtual void softcap(TensorView x, float cap) = 0;
  // x = clamp(x, -limit, limit)
  virtual void clamp(TensorView x, float limit) = 0;
  // out = activation(x), element-wise; out may be x
  virtual void activate(TensorView out, TensorView x, Activation activation) = 0;
  // out[n, inner] = activation(gate) * up, where gate_up[n, 2 * inner] holds gate, then up
  virtual void gated(TensorView out, TensorView gate_up, Activation activation) = 0;
  // out[i] = x[rows[i]]
  virtual void gather_rows(TensorView out, TensorView x, std::span<const int32_t> rows) = 0;

  // -- position and attention

  // angles f32 [n, pairs, 2] = magnitude * {cos, sin}(position · inverse_frequency), by each token's row of the table
  virtual void rope_angles(TensorView angles, const RaggedBatch&, const RopeTable& table) = 0;
  // Rotates the first 2 * pairs elements of each head of x[n, heads, dim] in place.
  virtual void rope(TensorView x, TensorView angles, RopeStyle style) = 0;
  // Stores k[n, kv_heads, key_dim] and v[n, kv_heads, value_dim] at the tokens' positions. v is empty where
  // it aliases k.
  virtual void write_kv(const PagedKv&, TensorView k, TensorView v, const RaggedBatch&) = 0;
  // out[n, heads, value_dim] = softmax(scale · q kᵀ) v over each token's own sequence up to its position, or to RaggedBatch::seen
  virtual void attend(TensorView out, TensorView q, const PagedKv&, const RaggedBatch&,
                      const AttentionShape&) = 0;
  // Copies whole blocks of one layer's KV: pairs (from, to).
  virtual void copy_blocks(const PagedKv&, std::span<const std::pair<BlockId, BlockId>> moves) = 0;

  // -- mixtures

  // ids I32 [n, slots()] and weights f32 [n, slots()], best first; a tie goes to the lower expert
  virtual void route(TensorView ids, TensorView weights, TensorView logits, const Routing&) = 0;
  // out[n, dim] = Σ over slots of weights[n, slot] · expert ids[n, slot] of x, summed in slot order; slots whose expert is
  // not of the bank add nothing
  virtual void moe_ffn(TensorView out, TensorView x, TensorView ids, TensorView weights,
                       const ExpertBank&) = 0;

  // -- fused

  // sum += b_scale * b; out = rms_norm(sum)
  virtual void add_rms_norm(TensorView out, const Residual& x, const RmsGain& norm) {
    add(x.sum, x.sum, x.b, x.b_scale);
    rms_norm(out, x.sum, norm.gain, norm.eps);
  }
  // sum += b_scale * GEMM; out = rms_norm(sum). b has room for the GEMM; what it holds afterwards is not said.
  virtual void matmul_add_rms_norm(TensorView out, const Residual& x, const DeferredMatmul& gemm,
                                   const RmsGain& norm) {
    matmul(x.b, gemm.x, *gemm.weight);
    add_rms_norm(out, x, norm);
  }
  // sum = sum_scale * (sum + b_scale * rms_norm(b)). What b holds afterwards is not said.
  virtual void add_normed(const Residual& x, const RmsGain& branch) {
    rms_norm(x.b, x.b, branch.gain, branch.eps);
    add(x.sum, x.sum, x.b, x.b_scale);
    if (x.sum_scale != 1.0f) scale(x.sum, x.sum_scale);
  }
  // The same, and out = rms_norm(sum).
  virtual void add_normed_rms_norm(TensorView out, const Residual& x, const RmsGain& branch,
                                   const RmsGain& norm) {
    if (x.sum_scale != 1.0f) {
      add_normed(x, branch);
      return rms_norm(out, x.sum, norm.gain, norm.eps);
    }
    rms_norm(x.b, x.b, branch.gain, branch.eps);
    add_rms_norm(out, x, norm);
  }
  // Rotates q and k, then stores k and v. k may be left rotated or not.
  virtual void rope_write_kv(const PagedKv& kv, const QkvHeads& x, TensorView angles, RopeStyle style,
                             const RaggedBatch& batch) {
    rope(x.q, angles, style);
    rope(x.k, angles, style);
    write_kv(kv, x.k, x.v, batch);
  }
  // out[n, inner] = gated(x · gate_upᵀ). wide [n, 2 * inner] is memory for what lies between; what it holds
  // afterwards is undefined.
  virtual void matmul_gated(TensorView out, TensorView wide, TensorView x, const Weight& gate_up,
                            Activation activation) {
    matmul(wide, x, gate_up);
    gated(out, wide, activation);
  }
};

}  // namespace sluice::kernels

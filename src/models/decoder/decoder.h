// The one decoder: runs a step of any ModelSpec on any back-end.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/layer_stack.h"
#include "kernels/recurrent.h"
#include "models/decoder/scratch.h"
#include "models/group/part_times.h"
#include "models/layers/context.h"
#include "models/layers/streams.h"
#include "models/loading/weights.h"
#include "models/model_group.h"
#include "models/spec.h"

namespace sluice::models {

// Rows of the step whose embeddings are not those of their tokens.
struct EmbeddedRows {
  int32_t row = 0;  // the first
  // [rows, (1 + d) dim], activation type: the embeddings, and what layers 0 to d - 1 add behind them
  TensorView values;
};

struct StepInput {
  std::span<const Token> tokens;         // [n]; each < vocab
  const kernels::RaggedBatch& batch;     // of the same n tokens
  std::span<const kernels::PagedKv> kv;  // per layer; a layer that reads another's KV has that one's
  std::span<const TensorView>
      states{};  // per layer [slots, elements]; empty views, or none, where none keeps any
  kernels::StateBatch state_batch{};  // of the same sequences, where a layer keeps a state
  // The only rows that hidden() will be asked for, ascending; absent: any. The last layer computes no more than these once
  // their keys and values are stored: of a long prompt one row in thousands is wanted.
  std::optional<std::span<const int32_t>> rows{};
  std::span<const EmbeddedRows> embedded{};
};

// Whether all layers are what a kernels::LayerStackDevice runs, as far as the spec says.
bool is_dense_stack(const ModelSpec& spec);

// Holds references: spec, weights, back-end and group outlive it. One step at a time. Where a group computes the model, every
// rank of it makes the same calls; spec and weights are the rank's own.
class Decoder {
 public:
  // `group` null: this rank computes all of the model.
  Decoder(const ModelSpec& spec, const ModelWeights& weights, kernels::Backend& backend,
          ModelGroup* group = nullptr);

  // Runs all layers over the step's tokens.
  void forward(const StepInput& input);
  // [rows, dim] of the last step after the last norm. Valid until the next call of any method. REQUIRES: the step was told
  // of these rows, and the rank has the last layers.
  TensorView hidden(std::span<const int32_t> rows);
  // The same before that norm.
  TensorView stream(std::span<const int32_t> rows);
  // From the next step on: keeps what enters these layers. REQUIRES: they start with a norm.
  void set_taps(std::vector<int> layers) { taps_ = std::move(layers); }
  // Of the next step alone: keeps the queries of these rows in every layer of plain attention.
  void keep_queries(std::span<const int32_t> rows) { query_rows_.assign(rows.begin(), rows.end()); }
  // [rows, heads * head_dim] of the last step in this layer, as they attended. REQUIRES: they were kept.
  TensorView queries(size_t layer);
  // [rows, taps * dim], any rows of the last step.
  TensorView tapped(std::span<const int32_t> rows);
  // From the next step on: has it take the times of steps, which run on the host. Null: nothing does.
  void time_steps(PartClock* clock) { clock_ = clock; }
  // Of the buffers of its steps.
  int64_t scratch_bytes() const { return scratch_.bytes(); }
  // [rows, vocab] for hidden states as hidden() gives them, activation type. Valid until the next call of
  // logits(). Of ranks with the same layers the first one has all columns.
  TensorView logits(TensorView hidden);

 private:
  struct LayerRun;

  void embed(const StepInput& input, TensorView x);
  // Rows of a table whose rows are cut over the group.
  void look_up(TensorView out, const Weight& table, std::span<const Token> tokens);
  // Rows of this rank's share of tokens, of all rows of the step.
  TensorView own_rows_of(TensorView all) const;
  // All rows of the step, of which each rank has those of its share of tokens.
  TensorView gathered(TensorView own);
  // What each rank of the group has of the branch is to become their sum, which may be made with what follows.
  void add_up_branch(TensorView branch);
  // What this rank adds to the sum that is pending.
  TensorView part_of(TensorView branch) const { return part_.empty() ? branch : part_; }
  // As those of LayerContext.
  ModelGroup* expert_group() const;
  ModelGroup* tensor_group() const;
  // What every layer gets of the step's tokens, from their ids and their embeddings x.
  void make_layer_inputs(const StepInput& input, TensorView x);
  // What a layer makes of its input, read by x; the first before its norm.
  TensorView layer_input_product(size_t index, TensorView x);
  TensorView layer_input_branch(size_t index, TensorView x);
  // x = scale * (x + that)
  void add_layer_input(size_t index, TensorView x, float scale);
  void run_layer(size_t index, const StepInput& input, TensorView x);
  void find_stack_device();
  // Whether the back-end ran all layers over the stream as one operation.
  bool run_stack(const StepInput& input);
  void norm(TensorView out, TensorView x, const Norm& weights);
  // Makes the branch's last product and its sum over the group, if those are still to be made.
  void finish_branch(TensorView branch);
  // The branch is normed, while it is added where that can be.
  void norm_branch(TensorView branch, const Norm& weights);
  // x = from + branch
  void add_branch(TensorView x, TensorView from, TensorView branch);
  // x gets the branch; out its norm, which one product reads and nothing else where `read_once`.
  void add_norm(TensorView out, TensorView x, TensorView branch, const Norm& weights, bool read_once = false);
  // The norm that a layer starts with, after what the layer before it still owes.
  void enter_layer(TensorView out, TensorView x, TensorView branch, const Norm& weights, bool read_once);
  // Leaves x and branch with the step's wanted rows.
  void drop_rows(std::span<const int32_t> rows, TensorView& x, TensorView& branch);
  void tap(size_t layer, TensorView x);
  TensorView logits_memory(int64_t rows);
  void copy_queries(size_t layer, int64_t step_rows);
  TensorView query_memory(size_t rows);
  bool starts_with_norm(size_t index) const;
  // The first layer norms the embeddings before they are scaled, which rounds them.
  bool scales_behind_norm() const;
  // Gives the stream the factor that it lacks behind the first norm.
  void scale_embeddings(const StepInput& input, TensorView x);
  bool is_last(size_t index) const;  // of the model
  // The rows of all ranks meet before a part of a layer, and its sums go apart behind it.
  bool gathers() const { return split_ && !context_; }

  const ModelSpec& spec_;
  const ModelWeights& weights_;
  kernels::Backend& backend_;
  ModelGroup* group_;
  Scratch scratch_;
  StreamRun streams_;
  std::optional<ContextShare> context_;  // where ranks share the KV cache
  std::vector<Token> own_tokens_;        // of a lookup, as rows of the table at hand
  std::vector<TensorView> angles_;       // per rope, of the step's tokens
  TensorView layer_inputs_;              // [n, layers * layer_input]
  PartClock* clock_ = nullptr;
  std::vector<int> taps_;
  std::vector<int32_t> query_rows_;
  size_t kept_queries_ = 0;  // rows of the last step
  int64_t step_rows_ = 0;
  Range own_rows_;                            // of the step, that this rank has between the parts of layers
  bool split_ = false;                        // other ranks have the others
  TensorView own_branch_;                     // [own rows, dim], where rows are split
  TensorView stream_;                         // [own rows, dim] after the last layer, or [kept rows, dim]
  std::optional<std::vector<int32_t>> kept_;  // rows of the step that stream_ still has; absent: all
  bool residual_pending_ = false;  // the last layer's branch is still to be added, with the next norm
  std::optional<kernels::RmsGain> branch_norm_;  // the branch is still to be normed, while it is added
  float sum_scale_ = 1.0f;                       // factor on the sum of the stream and that branch
  float embedding_scale_ = 1.0f;                 // factor that the stream still lacks
  std::optional<kernels::DeferredMatmul>
      pending_output_proj_;   // the branch's last product, which may be made with what follows
  bool sum_pending_ = false;  // the branch is still to be summed over the group; its product is made
  TensorView part_;           // where that is; empty: in the branch
  kernels::LayerStackDevice* stack_device_ = nullptr;  // null: it has none, or the layers are none for it
  std::vector<kernels::DenseLayer> stack_layers_;
  std::vector<int32_t> own_rows_kept_;  // of a lookup: 1 where the table at hand has the token
};

}  // namespace sluice::models

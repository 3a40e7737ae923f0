// The parts of a layer. Each reads x[n, dim] and writes out[n, dim]; x and out are different buffers. A part that ends with
// a product leaves that to its caller, who may have something to fuse it with, and does not touch out.
#pragma once

#include <optional>
#include <span>

#include "kernels/backend.h"
#include "kernels/recurrent.h"
#include "models/decoder/scratch.h"
#include "models/layers/context.h"
#include "models/loading/weights.h"
#include "models/model_group.h"
#include "models/spec.h"

namespace sluice::models {

// What a part needs beside its weights.
struct LayerContext {
  kernels::Backend& backend;
  Scratch& scratch;
  const ModelSpec& spec;
  const kernels::RaggedBatch& batch;
  const kernels::PagedKv& kv;
  std::span<const TensorView> angles;  // per rope
  const kernels::StateBatch& states;   // of the step's sequences
  TensorView state{};                  // [slots, elements] of the layer; empty where it keeps none
  // Whose ranks each have some of the layer's experts and all of its other parts: it sums what experts give. Null: what a
  // part gives is whole, or summed by the caller.
  ModelGroup* expert_group = nullptr;
  // Whose ranks each have a share of the layer's heads and widths: a part sums with them what it needs whole on its way. Null:
  // they are whole.
  ModelGroup* tensor_group = nullptr;
  // Where ranks share the KV cache; the batch and x are then those of the rank's own rows, `states` that of the whole step.
  // Null: it is whole.
  ContextShare* shared_context = nullptr;

  // The rows of the step, of which x has those of this rank.
  const kernels::RaggedBatch& step_batch() const {
    return shared_context != nullptr ? shared_context->step_batch() : batch;
  }
  // [rows of the step, width] from the rows of this rank; where it has all, `own` itself. Valid until the next of these calls.
  TensorView all_rows(TensorView own) const {
    return shared_context != nullptr ? shared_context->gathered(own) : own;
  }
  // Of rows of the step, those of this rank.
  TensorView own_rows(TensorView all) const {
    return shared_context != nullptr ? shared_context->own_rows(all) : all;
  }
};

// Numbers of a token in Buffer::Qkv once its mixer has run: queries, keys and values; gates that lie beside them, and as many
// numbers that those multiply.
int64_t qkv_row(const Attention&, const AttentionWeights&);

std::optional<kernels::DeferredMatmul> run_mixer(const Attention&, const AttentionWeights&,
                                                 const LayerContext&, TensorView out, TensorView x);
std::optional<kernels::DeferredMatmul> run_mixer(const LatentAttention&, const LatentWeights&,
                                                 const LayerContext&, TensorView out, TensorView x);
std::optional<kernels::DeferredMatmul> run_mixer(const ShortConv&, const ShortConvWeights&,
                                                 const LayerContext&, TensorView out, TensorView x);
std::optional<kernels::DeferredMatmul> run_mixer(const GatedDelta&, const DeltaWeights&, const LayerContext&,
                                                 TensorView out, TensorView x);
std::optional<kernels::DeferredMatmul> run_mixer(const StateSpace&, const StateSpaceWeights&,
                                                 const LayerContext&, TensorView out, TensorView x);
std::optional<kernels::DeferredMatmul> run_mixer(const ChannelScan&, const ChannelScanWeights&,
                                                 const LayerContext&, TensorView out, TensorView x);
std::optional<kernels::DeferredMatmul> run_mixer(const AttentionBesideStateSpace&, const BesideWeights&,
                                                 const LayerContext&, TensorView out, TensorView x);
// Reads the stream and, beside it, the tokens' embeddings: x[n, 2 dim].
std::optional<kernels::DeferredMatmul> run_mixer(const StateSpaceAfterBlock&, const AfterBlockWeights&,
                                                 const LayerContext&, TensorView out, TensorView x);
std::optional<kernels::DeferredMatmul> run_ffn(const DenseFfn&, const DenseWeights&, const LayerContext&,
                                               TensorView out, TensorView x);
std::optional<kernels::DeferredMatmul> run_ffn(const MoeFfn&, const MoeWeights&, const LayerContext&,
                                               TensorView out, TensorView x);
// Reads the stream itself, which it norms. What it gives is whole on every rank.
std::optional<kernels::DeferredMatmul> run_ffn(const DenseBesideExperts&, const DenseBesideExpertsWeights&,
                                               const LayerContext&, TensorView out, TensorView x);
std::optional<kernels::DeferredMatmul> run_ffn(const XieluFfn&, const XieluWeights&, const LayerContext&,
                                               TensorView out, TensorView x);

// Stores the step's index keys, where the layer has an indexer, and gives the positions that each token attends to, I32
// [n, chosen]: chosen from x[n, dim] and the query latents, or by a layer before. Empty: all that comes before it, in this
// step.
TensorView choose_positions(const LatentAttention& mixer, const IndexerWeights& weights,
                            const LayerContext& context, TensorView x, TensorView query_latent);

// As that, of a layer that chooses blocks: I32 [n, heads of its indexer, chosen].
TensorView choose_blocks(const Attention& mixer, const IndexerWeights& weights, const LayerContext& context,
                         TensorView x);

// Adds to out[n, rows], a product of x, what the adapter makes of it, where there is one.
void run_adapter(const Adapter& adapter, const LayerContext& context, TensorView out, TensorView x);

// Makes the product, where there is one.
void finish(kernels::Backend& backend, TensorView out, const std::optional<kernels::DeferredMatmul>& last);

// Multiplies the queries q[n, width] of the step by what the temperature says of their positions.
void scale_queries(const AttentionTemperature& temperature, const LayerContext& context, TensorView q);

// The model's norm with this gain and bias; out may be x.
void run_norm(kernels::Backend& backend, const ModelSpec& spec, TensorView out, TensorView x,
              const Norm& norm);

}  // namespace sluice::models

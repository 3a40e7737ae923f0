// The weights of a model, bound to the slots of its spec and prepared by a back-end.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "formats/tensor_store.h"
#include "kernels/backend.h"
#include "kernels/recurrent.h"
#include "models/placement.h"
#include "models/spec.h"

namespace sluice::models {

using kernels::Weight;

// f32 on the back-end's device; either may be empty.
struct Norm {
  TensorView gain;
  TensorView bias;
};

// What is added to the product of another matrix: ups[i] of a part of down x, stacked.
struct Adapter {
  Weight down;              // empty: there is none
  std::vector<Weight> ups;  // each [rows, rank]
};

struct IndexerWeights {
  Weight query;       // [heads * dim, query latent, or model width where blocks are chosen]
  Weight key;         // [dim, model width]
  Norm key_norm;      // a layer norm; of the model's kind where blocks are chosen
  Weight weights;     // [heads, model width]; empty where blocks are chosen
  Norm query_norm{};  // where blocks are chosen
};

struct AttentionWeights {
  // Rows: all queries, all keys, all values; queries only where another layer's KV is read. Then gates, where they lie beside.
  Weight qkv;
  Weight out;
  Norm q_norm, k_norm;
  TensorView sinks;  // [heads]
  TensorView alibi;  // [heads]
  Weight gate;       // empty without one, and where gates lie beside qkv
  Norm out_norm;
  Adapter qkv_adapter;
  IndexerWeights indexer;  // empty where the layer attends to all
};

struct LatentWeights {
  // Rows: the query latent, or the queries where there is none; then latent and rope_dim.
  Weight in;
  Norm query_norm;  // this and the next are empty without a query latent
  Weight query_up;  // rows: per head nope_dim, then rope_dim
  Norm latent_norm;
  std::vector<Weight> key_up;    // per head [latent, nope_dim]: brings a query into the latent space
  std::vector<Weight> value_up;  // per head [value_dim, latent]
  Weight out;
  IndexerWeights indexer;  // empty where the layer has none of its own
};

struct ShortConvWeights {
  Weight in;  // rows: b, c, x
  kernels::CausalConv conv;
  Weight out;
};

struct DeltaWeights {
  // Rows: decays, betas, what is convolved, gates; latents of decays and gates where the mixer has them.
  Weight in;
  kernels::CausalConv conv;
  Weight gate, decay;  // of those latents; else empty
  kernels::DeltaRule rule;
  Norm norm;  // [value_dim]
  Weight out;
};

struct StateSpaceWeights {
  Weight in;  // rows: gate, x, b, c, steps
  kernels::CausalConv conv;
  kernels::SelectiveScan scan;
  Norm norm;  // [inner]
  Weight out;
};

struct ChannelScanWeights {
  Weight in;  // rows: x, gate
  kernels::CausalConv conv;
  Weight parameters;  // rows: steps' latent, b, c
  Norm step_norm, b_norm, c_norm;
  Weight step;
  kernels::SelectiveScan scan;
  Weight out;
};

struct BesideWeights {
  AttentionWeights attention;
  StateSpaceWeights scan;
};

struct NoWeights {};

struct DenseWeights {
  Weight gate_up;  // gate rows, then up rows; up only where not gated
  Weight down;
  Norm inner_norm;
  Weight ones{};        // [1, inner], where gates are cut off ...
  TensorView cutoff{};  // ... below this many deviations, negative, [inner]
  Adapter adapter{};    // of gate_up
};

struct AfterBlockWeights {
  Norm input_norm;  // [2 dim]
  AttentionWeights attention;
  Norm ffn_norm;
  DenseWeights ffn;
  Weight out;
  Norm scan_norm;
  StateSpaceWeights scan;
};

struct MoeWeights {
  Weight router;
  Weight latent_down, latent_up;  // empty without a latent
  TensorView choice_bias;
  TensorView weight_scale;
  kernels::ExpertBank experts;
  int joined = 0;       // of the bank's last experts, which are the shared one in parts
  DenseWeights shared;  // empty where it is joined
  Weight shared_gate;
};

struct DenseBesideExpertsWeights {
  DenseWeights dense;
  MoeWeights experts;
  Norm dense_norm, router_norm, expert_norm;
  Norm dense_post_norm, expert_post_norm;
};

struct XieluWeights {
  Weight up, down;
  Xielu parameters;
};

using MixerWeights =
    std::variant<AttentionWeights, LatentWeights, ShortConvWeights, DeltaWeights, StateSpaceWeights,
                 ChannelScanWeights, BesideWeights, AfterBlockWeights, NoWeights>;
using FfnWeights = std::variant<DenseWeights, MoeWeights, DenseBesideExpertsWeights, XieluWeights, NoWeights>;

// Of ModelSpec::streams and Wiring::Laurel.
struct StreamWeights {
  Weight router;  // [count, dim]
  Norm router_norm;
  Weight prediction;  // [count * count, count]
  Weight correction;  // [count, count]
  TensorView scale;   // [1, dim]
  Weight laurel_left, laurel_right;
  Norm laurel_norm;
};

// The alternatives are those of the layer's spec.
struct LayerWeights {
  MixerWeights mixer;
  FfnWeights ffn;
  Norm mixer_norm, mixer_post_norm, ffn_norm, ffn_post_norm;
  Weight input_gate, input_out;  // of ModelSpec::layer_input
  Norm input_norm;
  StreamWeights streams;
  float scale = 1.0f;
};

struct ModelWeights {
  Weight embedding;
  Weight embedding_in, embedding_out;  // of ModelSpec::embedding_dim
  Weight positions;
  Norm embedding_norm;
  Weight layer_inputs;            // [vocab, layers * layer_input]
  Weight layer_input_projection;  // [layers * layer_input, dim]
  Norm layer_input_norm;
  std::vector<Weight> stream_projections, stream_unprojections;  // [count - 1] each [dim, dim]
  Weight ones;                                                   // [1, dim], where there are streams
  std::vector<kernels::RopeTable> ropes;                         // per ModelSpec::ropes
  std::vector<LayerWeights> layers;
  Norm output_norm;
  Weight output;

  std::vector<std::shared_ptr<void>> owners;  // folded copies and uploaded vectors
};

// Called with the share of layers bound so far, 0 to 1.
using Progress = FunctionRef<void(float)>;

// Binds every slot of the spec; an error names the tensor, its shape and the shape that the spec needs.
// Frequencies of `spec.ropes` are divided by the file's own factors where it has them. The spec is that of the whole model;
// what a rank keeps of each matrix is cut from it, and of the rest only what the cut needs is read. REQUIRES: cut(spec,
// placement) succeeds.
Result<ModelWeights> bind_weights(ModelSpec& spec, const Placement& placement,
                                  const formats::TensorStore& store, kernels::Backend& backend,
                                  Progress progress);

}  // namespace sluice::models

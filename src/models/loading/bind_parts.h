// Weights of single layers, of positions, of the mixers that keep a state, and of streams.
#pragma once

#include "models/loading/binder.h"
#include "models/loading/cutter.h"

namespace sluice::models {

Norm bind_norm(Binder& binder, const ModelSpec& spec, WeightSlot slot, int64_t width);
kernels::RopeTable bind_rope(Binder& binder, const Rope& rope);
// REQUIRES: the model has embeddings of positions
Weight bind_positions(Binder& binder, const ModelSpec& spec);
// GGUF files carry the divisors of stretched frequencies as tensors.
void apply_rope_factors(Binder& binder, ModelSpec& spec);
// Under the number that the binder was told last; the placement's stage does not matter.
LayerWeights bind_layer(Binder& binder, const ModelSpec& spec, const LayerSpec& layer,
                        const Placement& placement);

ShortConvWeights bind_recurrent(Binder& binder, const ModelSpec& spec, const ShortConv& mixer,
                                const Cutter& cutter);
DeltaWeights bind_recurrent(Binder& binder, const ModelSpec& spec, const GatedDelta& mixer,
                            const Cutter& cutter);
StateSpaceWeights bind_recurrent(Binder& binder, const ModelSpec& spec, const StateSpace& mixer,
                                 const Cutter& cutter);
ChannelScanWeights bind_recurrent(Binder& binder, const ModelSpec& spec, const ChannelScan& mixer,
                                  const Cutter& cutter);

// Those with this number, of queries, keys and values and of gate and up; empty where the part has none.
Adapter bind_adapter(Binder& binder, const ModelSpec& spec, const Attention& mixer, int number,
                     const Cutter& cutter);
Adapter bind_adapter(Binder& binder, const ModelSpec& spec, const DenseFfn& ffn, int number,
                     const Cutter& cutter);

// Every rank of a group has all of it: what it chooses is the same for all heads.
IndexerWeights bind_indexer(Binder& binder, const ModelSpec& spec, const LatentAttention& mixer);
// Of the queries, `rows`.
IndexerWeights bind_indexer(Binder& binder, const ModelSpec& spec, const Attention& mixer, const Cut& rows);

// Of a layer; REQUIRES: the model has streams.
StreamWeights bind_streams(Binder& binder, const ModelSpec& spec);
// What lies before the first layer and behind the last.
void bind_stream_ends(Binder& binder, const ModelSpec& spec, ModelWeights& weights);
// Where the back-end wants it and the shared expert differs from the routed ones in nothing but its width, a multiple of
// theirs: brings it into their bank, in parts as wide as they are. How many; 0: it stays apart. REQUIRES: nothing is cut.
// Its gate, where it has one, is then the router's last row.
int join_shared_experts(Binder& binder, const ModelSpec& spec, const MoeFfn& ffn, kernels::ExpertBank& bank);
// Of a feed-forward whose gates are cut off.
void bind_cutoff(Binder& binder, const DenseFfn& ffn, DenseWeights& weights);

}  // namespace sluice::models

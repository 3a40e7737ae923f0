// Where a weight lies in a file: slots of the decoder, and the names (with folds) that fill them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::models {

enum class WeightSlot : uint8_t {
  TokenEmbedding,
  EmbeddingIn,
  EmbeddingOut,
  PositionEmbedding,
  EmbeddingNorm,
  OutputNorm,
  Output,
  MixerNorm,
  MixerPostNorm,
  FfnNorm,
  FfnPostNorm,
  Qkv,
  Qkk,  // the same where the keys' matrix makes the values too
  AttentionOut,
  AttentionOutNorm,
  QNorm,
  KNorm,
  Sinks,
  AttentionGate,
  QueryDown,
  QueryDownNorm,
  QueryUp,
  LatentDown,
  LatentNorm,
  LatentUp,
  LatentKeyUp,
  LatentValueUp,
  IndexQuery,
  IndexKey,
  IndexKeyNorm,
  IndexQueryNorm,
  IndexWeights,
  GateUp,
  Down,
  DownNorm,
  Router,
  RouterChoiceBias,
  RouterInputScale,
  RouterWeightScale,
  DensePostNorm,
  ExpertNorm,
  ExpertPostNorm,
  ExpertLatentDown,
  ExpertLatentUp,
  ExpertGateUp,
  ExpertDown,
  SharedGateUp,
  SharedDown,
  SharedGate,
  XieluAlphaP,
  XieluAlphaN,
  XieluBeta,
  LayerInputTable,
  LayerInputProjection,
  LayerInputProjectionNorm,
  LayerInputGate,
  LayerInputOut,
  LayerInputNorm,
  LayerScale,
  StreamProjections,
  StreamUnprojections,
  StreamRouter,
  StreamRouterNorm,
  StreamPrediction,
  StreamCorrection,
  StreamScale,
  LaurelLeft,
  LaurelRight,
  LaurelNorm,
  RopeFactors,
  RopeFactorsBeyond,  // of sequences longer than the rope's limit
  MixerIn,
  ConvKernel,
  MixerGateDown,
  MixerGate,
  DecayDown,
  Decay,
  Beta,
  DecayRate,
  DecayBias,
  ScanSkip,
  ScanParameters,
  ScanStepNorm,
  ScanBNorm,
  ScanCNorm,
  ScanStep,
  MixerHeadNorm,
  MixerOut,
  BlockOut,
  QkvAdapterDown,
  QueryAdapterUp,
  KeyAdapterUp,
  ValueAdapterUp,
  GateUpAdapterDown,
  GateUpAdapterUp,
  HeadTokenNorm,
  HeadHiddenNorm,
  HeadFusion,
};

// What must be done to the stored tensor so that it means what the decoder expects.
enum class Fold : uint8_t {
  None,
  AddOne,        // a norm gain stored as gain - 1
  Transpose,     // stored [in, out]
  SplitPairs,    // stored [in, out] with gate and up interleaved: transposed, gates first
  GroupedQkv,    // rows grouped by kv head: its queries, its key, its value
  QuarteredQvk,  // rows in four quarters, each with its queries, its values, its keys
  UnitRows,      // every row divided by its length
  HeadQueries,   // rows of each head: its query, its gate; the queries
  HeadGates,     // ... the gates
  PackedQkv,     // rows of each key head: its query, its key, its values, their gates; queries, keys, values
  PackedGates,   // ... the gates
  PackedBetas,   // rows of each key head: the betas of its values, their decays; the betas
  PackedDecays,  // ... the decays
  NegativeExp,   // a rate stored as log(-rate)
};

// A stem is completed by ".weight" and ".bias" (or stands for itself); "{l}" is the layer, "{e}" the expert.
// A slot's rows are stacked in order; rows that the file does not have are skipped, and what is found must
// add up to the shape that the spec implies.
struct NameRow {
  WeightSlot slot;
  std::string_view stem;
  Fold fold = Fold::None;
};

class WeightNames {
 public:
  WeightNames() = default;
  WeightNames(std::initializer_list<NameRow> rows) : rows_(rows) {}
  // The same table with the rows of every slot that `rows` mentions replaced.
  WeightNames with(std::initializer_list<NameRow> rows) const {
    return with(std::span(rows.begin(), rows.size()));
  }
  WeightNames with(std::span<const NameRow> rows) const;
  std::vector<NameRow> rows(WeightSlot slot) const;
  // Applies a fold to every row of these slots.
  WeightNames folded(std::initializer_list<WeightSlot> slots, Fold fold) const;

 private:
  std::vector<NameRow> rows_;
};

std::string_view name(WeightSlot slot);

const WeightNames& hugging_face_names();  // the Llama layout, which most families share
const WeightNames& gguf_names();
// With the mixers that keep a state, under the names of all families that have them: a file has one of each.
WeightNames with_recurrent(const WeightNames& names);
// GGUF keeps decay rates as they are, and their biases as those of a matrix that is not there.
WeightNames with_recurrent_gguf(const WeightNames& names);
WeightNames kimi_linear_gguf_names();
WeightNames kimi_linear_names();  // linear attention and mixtures under names that mean other parts elsewhere

}  // namespace sluice::models

#include "models/group/stage_cut.h"

#include <gtest/gtest.h>

#include "models/placement.h"
#include "specs.h"

namespace sluice::models {

namespace {

ModelSpec dense_spec(int layers) {
  return spec_of(with(small_config(), {{"num_hidden_layers", layers}})).value();
}

std::vector<int64_t> counts_of(const std::vector<Range>& ranges) {
  std::vector<int64_t> counts;
  for (const Range& range : ranges) counts.push_back(range.size());
  return counts;
}

using Counts = std::vector<int64_t>;

}  // namespace

TEST(StageCut, EqualLayersAreSharedEqually) {
  EXPECT_EQ(counts_of(cut_stages(dense_spec(16), 2, {})), (Counts{8, 8}));
  EXPECT_EQ(counts_of(cut_stages(dense_spec(15), 2, {})), (Counts{7, 8}));
  for (const int64_t count : counts_of(cut_stages(dense_spec(30), 4, {})))
    EXPECT_TRUE(count == 7 || count == 8);
  EXPECT_EQ(counts_of(cut_stages(dense_spec(3), 3, {})), (Counts{1, 1, 1}));
}

TEST(StageCut, AStageWithTheOutputMatrixHasFewerLayers) {
  const ModelSpec spec = dense_spec(16);
  const int64_t layer = layer_cost(spec, spec.layers[0]);
  EXPECT_EQ(counts_of(cut_stages(spec, 2, {.last = 4 * layer})), (Counts{10, 6}));
  EXPECT_EQ(counts_of(cut_stages(spec, 3, {.first = layer, .last = layer})), (Counts{5, 6, 5}));
}

TEST(StageCut, CostlyLayersWeighMore) {
  ModelSpec spec = dense_spec(8);
  for (size_t i = 0; i < 4; ++i) std::get<DenseFfn>(spec.layers[i].ffn).inner *= 8;
  const std::vector<Range> ranges = cut_stages(spec, 2, {});
  EXPECT_LT(ranges[0].size(), 4);
  EXPECT_EQ(ranges[0].end, ranges[1].begin);
  EXPECT_EQ(ranges[1].end, 8);
}

TEST(StageCut, ExpertsBehindALatentWeighItsWidth) {
  ModelSpec spec = dense_spec(1);
  LayerSpec layer{.mixer = NoMixer(), .ffn = NoFfn()};
  MoeFfn experts{.inner = 32, .shared_inner = 48};
  experts.routing.experts = 8;
  layer.ffn = experts;
  EXPECT_EQ(layer_cost(spec, layer), 64 * 8 + 3 * 32 * 64 * 8 + 3 * 48 * 64);
  experts.latent = 16;
  layer.ffn = experts;
  EXPECT_EQ(layer_cost(spec, layer), 64 * 8 + 3 * 32 * 16 * 8 + 2 * 64 * 16 + 3 * 48 * 64);
}

// The second stage would have layers of one window alone where the costs are equal.
TEST(StageCut, EveryStageHasEveryWindow) {
  ModelSpec spec = dense_spec(8);
  for (size_t i = 0; i < 4; ++i) std::get<Attention>(spec.layers[i].mixer).window = 32;
  EXPECT_EQ(counts_of(cut_stages(spec, 2, {})),
            (Counts{4, 4}));  // none is allowed: the one without conditions
  std::get<Attention>(spec.layers[1].mixer).window = 0;
  std::get<Attention>(spec.layers[3].mixer).window = 0;
  EXPECT_EQ(counts_of(cut_stages(spec, 2, {})), (Counts{2, 6}));
}

TEST(StageCut, ALayerStaysWithTheOneWhoseKeysItReads) {
  ModelSpec spec = dense_spec(8);
  std::get<Attention>(spec.layers[5].mixer).kv_from = 3;
  EXPECT_EQ(counts_of(cut_stages(spec, 2, {})), (Counts{3, 5}));
}

// What takes long although it is small, and the reverse; but no stage gets weights of others beyond the limit.
TEST(StageCut, SlowLayersWeighMore) {
  const ModelSpec spec = dense_spec(8);
  const int64_t layer = layer_cost(spec, spec.layers[0]), no_limit = 8 * layer;
  StageCosts costs{.layers = {5, 1, 1, 1, 1, 1, 1, 1}};
  EXPECT_EQ(counts_of(cut_stages_by(spec, 2, costs, no_limit)), (Counts{2, 6}));
  EXPECT_EQ(counts_of(cut_stages_by(spec, 2, costs, 5 * layer)), (Counts{3, 5}));
  EXPECT_TRUE(cut_stages_by(spec, 2, costs, 3 * layer).empty());
  EXPECT_EQ(slowest_stage(costs, cut_stages_by(spec, 2, costs, no_limit)), 6);
  costs = {.layers = {1, 1, 1, 1, 1, 1, 1, 1}, .first = 2, .last = 4};
  const std::vector<Range> stages = cut_stages_by(spec, 2, costs, no_limit);
  EXPECT_EQ(counts_of(stages), (Counts{5, 3}));
  EXPECT_EQ(slowest_stage(costs, stages), 7);
}

// Ranks that cut layers, too, have all logits on the last stage.
TEST(StageCut, PlacementWeighsTheLogits) {
  ModelSpec spec = dense_spec(16);
  spec.vocab = static_cast<int>(4 * layer_cost(spec, spec.layers[0]) / spec.dim);
  const Cuts both{.tensor = 2, .stages = 2}, stages{.stages = 2};
  EXPECT_EQ(placement_of(0, both).layers(spec), (Range{0, 10}));
  EXPECT_EQ(placement_of(2, both).layers(spec), (Range{10, 16}));
  EXPECT_EQ(placement_of(0, stages).layers(spec), (Range{0, 8}));  // half of the logits each
  const Cuts by_hand{.stages = 2, .stage_layers = {3, 13}};
  EXPECT_EQ(placement_of(0, by_hand).layers(spec), (Range{0, 3}));
  EXPECT_EQ(placement_of(1, by_hand).layers(spec), (Range{3, 16}));
}

}  // namespace sluice::models

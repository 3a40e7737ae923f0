// Stages cut by how long their layers take, over ranks that are threads of this process.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "dist/local_group.h"
#include "models/group/stage_cut.h"
#include "models/model.h"
#include "runtime/device.h"
#include "runtime/parallel/order.h"
#include "runtime/parallel/stage_times.h"
#include "runtime/parallel/worker.h"
#include "runtime/scorer.h"

namespace sluice {

namespace {

const std::string kFolder = std::string(SLUICE_TEST_DATA) + "/llama";

std::unique_ptr<models::Model> load_stage(const std::shared_ptr<models::ModelGroup>& group) {
  return models::load_model(
             models::open_model(kFolder).value(),
             runtime::make_backend({.device = "cpu", .threads = 1}).value(), [](float) {}, group)
      .value();
}

std::vector<float> logits_of(const models::Model& model) {
  const std::vector<Token> prompt{1, 7, 3, 9, 12};
  return runtime::Scorer(model, 8).append(prompt).value();
}

// Two stages, of which the second follows the first until that ends the group.
class TwoStages {
 public:
  explicit TwoStages(const models::Cuts& cuts) {
    auto ranks = dist::make_local_group(2);
    first = std::make_shared<models::ModelGroup>(std::move(ranks[0]), cuts);
    thread_ = std::thread([this, rank = std::move(ranks[1]), cuts]() mutable {
      const auto group = std::make_shared<models::ModelGroup>(std::move(rank), cuts);
      for (;;) {
        const std::unique_ptr<models::Model> model = load_stage(group);
        loaded.push_back(model->spec().layers.size());
        Result<std::vector<int>> again = runtime::run_worker_until_cut(*model);
        EXPECT_TRUE(again.ok()) << again.error().message;
        if (!again || again->empty()) return;
        group->cut_by(std::move(*again));
      }
    });
  }
  ~TwoStages() { join(); }
  // REQUIRES: the first stage's model is gone.
  void join() {
    first.reset();
    if (thread_.joinable()) thread_.join();
  }

  std::shared_ptr<models::ModelGroup> first;
  std::vector<size_t> loaded;  // layers of the second stage, each time

 private:
  std::thread thread_;
};

}  // namespace

TEST(StageTimes, RanksLoadTheModelAgain) {
  const std::vector<float> whole = logits_of(*load_stage(nullptr));
  TwoStages stages({.stages = 2, .micro_batches = 2});
  auto model = load_stage(stages.first);
  ASSERT_EQ(model->files.spec.layers.size(), 2u);
  EXPECT_EQ(logits_of(*model), whole);
  runtime::OrderWriter order(runtime::Order::Cut);
  const std::vector<int> wanted{1, 1};
  order.put(wanted);
  order.send(*stages.first);
  model.reset();
  stages.first->cut_by(wanted);
  model = load_stage(stages.first);
  EXPECT_EQ(stages.first->placement().stage_layers, wanted);
  EXPECT_EQ(logits_of(*model), whole);
  model.reset();
  stages.join();
  EXPECT_EQ(stages.loaded, (std::vector<size_t>{1, 1}));
}

TEST(StageTimes, EveryPartOfEveryRankIsTimed) {
  TwoStages stages({.stages = 2, .micro_batches = 2});
  auto model = load_stage(stages.first);
  runtime::Scorer scorer(*model, 16);
  const std::vector<Token> prompt{1, 7, 3, 9};
  scorer.runner().time_steps();
  ASSERT_TRUE(scorer.append(prompt).ok());
  for (const models::PartTimes& rank : scorer.runner().step_times()) {
    EXPECT_EQ(rank.layers.size(), 1u);
    for (const double seconds : rank.layers) EXPECT_GT(seconds, 0);
    EXPECT_GT(rank.logits, 0);  // each stage has half of them
  }
}

// What is measured may be anything; the ranks agree on it, and no bit changes.
TEST(StageTimes, MeasuredStagesGiveTheSameBits) {
  const std::vector<float> whole = logits_of(*load_stage(nullptr));
  TwoStages stages({.stages = 2, .micro_batches = 2});
  auto model = load_stage(stages.first);
  Result<std::vector<int>> counts = runtime::measure_stages(*model);
  ASSERT_TRUE(counts.ok()) << counts.error().message;
  if (!counts->empty()) {
    EXPECT_EQ((*counts)[0] + (*counts)[1], static_cast<int>(model->files.spec.layers.size()));
    model.reset();
    stages.first->cut_by(*counts);
    model = load_stage(stages.first);
  }
  EXPECT_EQ(logits_of(*model), whole);
}

TEST(StageTimes, WhatWasCutByHandStays) {
  TwoStages stages({.stages = 2, .stage_layers = {1, 1}, .micro_batches = 2});
  auto model = load_stage(stages.first);
  ASSERT_EQ(model->spec().layers.size(), 1u);
  const Result<std::vector<int>> counts = runtime::measure_stages(*model);
  ASSERT_TRUE(counts.ok());
  EXPECT_TRUE(counts->empty());
}

}  // namespace sluice

#include "lab/plan/step_table.h"

#include <gtest/gtest.h>

#include <functional>

namespace sluice::lab {
namespace {

// A machine whose layers take 2 for a token and 10 at all, whose ends take 100 and 3 for each row of logits, and where a
// token takes 0.5 for each further position.
double truth(const StepRate& step) {
  const double seen = step.queries == 1 ? step.depth + 1 - (StepRates::kBaseDepth + 1)
                                        : step.depth + (step.queries + 1) / 2.0 - 64.5;
  const double attention = step.queries == 1 || step.queries > 128 || step.depth > 0
                               ? 0.5 * step.tokens() * std::max(0.0, seen)
                               : 0;
  return step.layers * (10 + 2.0 * step.tokens() + attention) +
         (step.logits ? 100 + 3.0 * step.sequences : 0);
}

StepRates rates_of(bool logits) {
  StepRates rates{.type = DType::Q4_1, .kv_type = DType::BF16, .elements = 5, .steps = {}};
  const auto add = [&](StepRate step) {
    step.seconds = truth(step);
    rates.steps.push_back(step);
  };
  for (const int rows : {1, 4, 64}) {
    add({8, rows, 1, 16, logits});
    add({1, rows, 1, 16, true});
    for (const int depth : {128, 1024}) {
      add({8, rows, 1, depth, logits});
      if (logits) add({1, rows, 1, depth, true});
    }
  }
  for (const StepRate& step : {StepRate{4, 1, 128, 0}, StepRate{4, 4, 128, 0}, StepRate{4, 1, 512, 512}}) {
    for (const int layers : {4, 1}) {
      StepRate one = step;
      one.layers = layers;
      one.logits = logits;
      if (layers > 1 || logits) add(one);
    }
  }
  return rates;
}

TEST(StepTable, FindsWhatALayerAndWhatTheEndsCost) {
  for (const bool logits : {false, true}) {
    const StepTable table(rates_of(logits));
    ASSERT_FALSE(table.empty());
    EXPECT_NEAR(table.layer_seconds(1), 12, 1e-9);
    EXPECT_NEAR(table.layer_seconds(30), 70, 1e-9);
    EXPECT_NEAR(table.layer_seconds(1000), 2010, 1e-6);
    EXPECT_NEAR(table.end_seconds(16), 148, 1e-9);
    EXPECT_EQ(table.end_seconds(0), 0);
  }
}

TEST(StepTable, AddsWhatAttentionCostsBeyondItsBase) {
  for (const bool logits : {false, true}) {
    const StepTable table(rates_of(logits));
    EXPECT_NEAR(table.attention_seconds(1, 17, 4), 0, 1e-9);
    EXPECT_NEAR(table.attention_seconds(1, 517, 16), 250, 1e-6);
    EXPECT_NEAR(table.attention_seconds(1, 2017, 1), 1000, 1e-6);  // on with the slope
    EXPECT_NEAR(table.attention_seconds(128, 64.5, 1), 0, 1e-9);
    EXPECT_NEAR(table.attention_seconds(100, 264.5, 1), 100 * 200 * 0.5, 1e-6);
  }
}

TEST(StepTable, NamesTheStepsThatAPredictionRestsOn) {
  const StepRates rates = rates_of(false);
  const auto named = [&](const std::function<double(const StepTable&)>& predict) {
    std::vector<StepRate> out;
    for (const size_t i : steps_behind(rates, [&](const StepRates& r) { return predict(StepTable(r)); }))
      out.push_back(rates.steps[i]);
    return out;
  };
  const auto layer = named([](const StepTable& table) { return table.layer_seconds(30); });
  ASSERT_EQ(layer.size(), 2u);  // of the sequences around it
  EXPECT_EQ(layer[0].sequences, 4);
  EXPECT_EQ(layer[1].sequences, 64);
  for (const StepRate& step : layer) EXPECT_EQ(step.depth, StepRates::kBaseDepth);
  const auto attention = named([](const StepTable& table) { return table.attention_seconds(1, 129, 4); });
  ASSERT_EQ(attention.size(), 2u);  // the step itself and its base
  EXPECT_EQ(attention[0].depth + attention[1].depth, StepRates::kBaseDepth + 128);
}

TEST(StepTable, CurvesMayFall) {
  const Curve curve{{0, 8}, {2, 4}, {6, 1}};
  EXPECT_EQ(on_curve(curve, 6, false), 1);
  EXPECT_EQ(on_curve(curve, 4, false), 2.5);
  EXPECT_EQ(on_curve(curve, 10, true), 0);
  EXPECT_EQ(on_curve(Curve{{2, 4}, {4, 12}}, 1, true), 2);
}

TEST(StepTable, ComesBackFromJson) {
  const StepRates rates = rates_of(true);
  const Result<StepRates> read = step_rates_from_json(to_json(rates), "profile");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->type, rates.type);
  EXPECT_EQ(read->kv_type, rates.kv_type);
  EXPECT_EQ(read->elements, rates.elements);
  ASSERT_EQ(read->steps.size(), rates.steps.size());
  for (size_t i = 0; i < rates.steps.size(); ++i) {
    EXPECT_EQ(read->steps[i].tokens(), rates.steps[i].tokens());
    EXPECT_EQ(read->steps[i].depth, rates.steps[i].depth);
    EXPECT_EQ(read->steps[i].layers, rates.steps[i].layers);
    EXPECT_EQ(read->steps[i].logits, rates.steps[i].logits);
    EXPECT_DOUBLE_EQ(read->steps[i].seconds, rates.steps[i].seconds);
  }
  json::object wrong = to_json(rates);
  wrong["steps"].as_array()[0].as_object()["layers"] = -1;
  EXPECT_FALSE(step_rates_from_json(wrong, "profile").ok());
}

}  // namespace
}  // namespace sluice::lab

#include "lab/sim/play.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "lab/plan/machine.h"
#include "lab/plan/what_if.h"

namespace sluice::lab {
namespace {

// A decoder of two layers on an H100, enough for the engine's flags.
CostModel small_model() {
  ModelSheet sheet;
  sheet.name = "small";
  sheet.spec.vocab = 100;
  sheet.spec.context = 512;
  sheet.spec.dim = 64;
  models::LayerSpec layer;
  layer.mixer = models::Attention{.heads = 4, .kv_heads = 2, .head_dim = 16};
  layer.ffn = models::DenseFfn{.inner = 128};
  sheet.spec.layers.assign(2, layer);
  sheet.matrices = {{.name = "all", .elements = 1e9, .calls = 2}};
  sheet.output = {.name = "output", .elements = 6400, .calls = 1};
  sheet.attention = {
      {.layers = 2, .heads = 4, .kv_heads = 2, .key_dim = 16, .value_dim = 16, .kv_width = 128}};
  sheet.stored_bytes = 2e9;
  return CostModel(sheet, *machine_named("H100"));
}

llm::EngineFlags settled_flags() {
  llm::EngineFlags flags;
  flags.max_seqs = 4;
  flags.max_step_tokens = 64;
  flags.block_size = 16;
  flags.context = 512;
  flags.kv_tokens = 4096;
  flags.kv_type = DType::F16;
  flags.prefix_cache = false;
  return flags;
}

TEST(Play, ShowsOneLoadUnderEverySchemeAndContinuousEndsFirst) {
  std::vector<ListedRequest> requests;
  for (int i = 0; i < 12; ++i) requests.push_back({.at = 0.001 * i, .input = 20, .output = 4 + 40 * (i % 3)});
  const Result<json::object> played = play_schemes(small_model(), settled_flags(), requests, nullptr);
  ASSERT_TRUE(played) << played.error().message;
  EXPECT_EQ(played->at("requests").as_array().size(), requests.size());
  std::map<std::string, double> seconds;
  for (const json::value& scheme : played->at("schemes").as_array()) {
    const std::string name(scheme.at("name").as_string());
    seconds[name] = scheme.at("seconds").to_number<double>();
    ASSERT_EQ(scheme.at("lanes").as_array().size(), requests.size()) << name;
    for (size_t i = 0; i < requests.size(); ++i) {
      const json::array& lane = scheme.at("lanes").at(i).as_array();
      ASSERT_GE(lane.size(), 2u) << name;
      EXPECT_EQ(lane[0].at(2).to_number<int>(), 0) << name;  // prefill first
      double end = requests[i].at - 1e-6;
      for (const json::value& span : lane) {
        EXPECT_GE(span.at(0).to_number<double>(), end - 1e-9) << name;
        end = span.at(1).to_number<double>();
      }
    }
  }
  ASSERT_EQ(seconds.size(), 4u);
  EXPECT_LT(seconds["continuous"], 0.9 * seconds["static"]);
}

TEST(Play, ARequestThatFitsNowhereIsAnErrorThatNamesTheScheme) {
  const Result<json::object> played =
      play_schemes(small_model(), settled_flags(), {{.at = 0, .input = 600, .output = 4}}, nullptr);
  ASSERT_FALSE(played);
  EXPECT_NE(played.error().message.find("static batching"), std::string::npos) << played.error().message;
}

TEST(WhatIf, SaysTheSameAsThePlan) {
  const CostModel model = small_model();
  const json::object answer = what_if_json(model.sheet(), model.machine(), 8, 256);
  EXPECT_DOUBLE_EQ(answer.at("cell").at("tpot_s").to_number<double>(), model.seconds({8, 1, 256}));
  EXPECT_NEAR(answer.at("decode").at("seconds").to_number<double>(), model.seconds({8, 1, 256}), 1e-12);
  EXPECT_EQ(answer.at("cell").at("bound").as_string(), "memory");
  double before = 0;
  for (const json::value& point : answer.at("curve").as_array()) {
    const double rate = point.at(0).to_number<double>() / point.at(1).to_number<double>();
    EXPECT_GT(rate, before);  // a larger batch never does less
    before = rate;
  }
}

}  // namespace
}  // namespace sluice::lab

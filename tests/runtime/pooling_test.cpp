// Vectors through executor and engine: equal to those of transformers' last hidden states (tools/make_pooling_cases.py),
// and the same to the bit whatever else the device does.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "rig.h"

namespace sluice::runtime::test {
namespace {

using Of = request::Pooling::Of;

request::Request pooling_request(std::vector<Token> prompt, Of of, bool normalize = false) {
  request::Request request;
  request.prompt = std::move(prompt);
  request.task = request::Pooling{.of = of, .normalize = normalize};
  return request;
}

TEST(Pooling, EqualsTransformers) {
  std::ifstream file(kData + "/pooling.json");
  std::ostringstream text;
  text << file.rdbuf();
  const Result<json::value> cases = parse_json(text.str(), "pooling.json");
  ASSERT_TRUE(cases.ok());
  for (const json::value& value : cases->as_array()) {
    const json::object& entry = value.as_object();
    Rig rig({.model = entry.at("model").as_string().c_str()});
    const Of of = entry.at("of").as_string() == "mean" ? Of::Mean : Of::Last;
    const Answer answer =
        rig.run(pooling_request(json::value_to<std::vector<Token>>(entry.at("prompt")), of));
    const auto expected = json::value_to<std::vector<float>>(entry.at("vector"));
    ASSERT_EQ(answer.vectors.size(), 1u);
    ASSERT_EQ(answer.vectors[0].size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(answer.vectors[0][i], expected[i], 2e-4) << i;
    EXPECT_TRUE(answer.choices.empty());
    EXPECT_EQ(answer.ends[0].reason, engine::FinishReason::Stop);
  }
}

TEST(Pooling, HasLengthOneWhereAsked) {
  Rig rig;
  const std::vector<float> vector = rig.run(pooling_request(words(12, 3), Of::Mean, true)).vectors.at(0);
  double squares = 0;
  for (const float value : vector) squares += double{value} * value;
  EXPECT_NEAR(squares, 1, 1e-6);
}

TEST(Pooling, DoesNotDependOnChunksCompanyOrCachedBlocks) {
  const std::vector<Token> prompt = words(70, 5);
  for (const Of of : {Of::Mean, Of::Last}) {
    Rig whole;
    const request::Request request = pooling_request(prompt, of);
    const std::vector<float> expected = whole.run(request).vectors.at(0);
    EXPECT_EQ(whole.run(request).vectors.at(0), expected) << "every block of the prompt is cached by then";
    EXPECT_EQ(whole.answer(1).ends[0].usage.cached_tokens, of == Of::Last ? 68 : 0);
    for (const int budget : {1, 5, 33}) {
      RigOptions options{.block_size = 3};
      options.scheduler.max_step_tokens = budget;
      Rig cut(options);
      const size_t other = cut.submit(greedy_request(words(20, 6), 30));
      const size_t wanted = cut.submit(request);
      cut.finish();
      EXPECT_EQ(cut.answer(wanted).vectors.at(0), expected) << budget;
      EXPECT_EQ(cut.answer(other).tokens().size(), 30u);
    }
  }
}

// Too few blocks for all: prompts are preempted half way and come back, by either way.
TEST(Pooling, SurvivesPreemption) {
  std::vector<request::Request> requests;
  for (uint32_t i = 0; i < 6; ++i) requests.push_back(pooling_request(words(30 + i, i), Of::Mean));
  std::vector<std::vector<float>> expected;
  for (const request::Request& request : requests) expected.push_back(Rig().run(request).vectors.at(0));
  for (const sched::Preemption preemption : {sched::Preemption::Recompute, sched::Preemption::Swap}) {
    RigOptions options{.blocks = {18, 40, 0}};
    options.scheduler.preemption = preemption;
    options.scheduler.max_step_tokens = 16;
    Rig rig(options);
    const size_t talker = rig.submit(greedy_request(words(8, 40), 40));
    for (const request::Request& request : requests) rig.submit(request);
    rig.finish();
    EXPECT_EQ(rig.answer(talker).tokens().size(), 40u);
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(rig.answer(i + 1).vectors.at(0), expected[i]);
  }
}

TEST(Pooling, FailsAloneWhereAStateIsNotFinite) {
  constexpr Token kPoison = 95;
  request::Request bad = pooling_request(words(20, 7), Of::Mean);
  bad.prompt[3] = kPoison;
  const request::Request good = pooling_request(words(20, 8), Of::Mean);
  Rig rig;
  rig.backend->poison = kPoison;
  const size_t a = rig.submit(bad), b = rig.submit(good);
  rig.finish();
  ASSERT_TRUE(rig.answer(a).error());
  EXPECT_TRUE(rig.answer(a).vectors.empty());
  EXPECT_EQ(rig.answer(b).vectors.size(), 1u);
}

TEST(Pooling, IsRefusedOverTheContext) {
  Rig rig;
  const sched::Scheduler& scheduler = rig.engine->scheduler();
  EXPECT_TRUE(scheduler.admissible(pooling_request(words(256, 9), Of::Mean)).ok());
  EXPECT_EQ(scheduler.admissible(pooling_request(words(257, 9), Of::Mean)).error().message,
            "257 prompt tokens are over the context of 256 tokens");
}

}  // namespace
}  // namespace sluice::runtime::test

// What the executor promises the engine: answers that depend on the request alone, and faults that stay where
// they belong.
#include <gtest/gtest.h>

#include "rig.h"

namespace sluice::runtime::test {
namespace {

std::vector<Token> alone(const request::Request& request, const RigOptions& options = {}) {
  RigOptions quiet = options;
  quiet.prefix_cache = false;
  Rig rig(quiet);
  return rig.run(request).tokens();
}

TEST(PromptLogprobs, DoNotDependOnChunksOrCachedBlocks) {
  request::Request request = greedy_request(words(70, 3), 3);
  request.sampling().prompt_logprobs = 3;
  Rig whole;
  const Answer expected = whole.run(request);
  ASSERT_EQ(expected.prompt_logprobs.size(), request.prompt.size() - 1);
  const auto expect_same = [&](const Answer& answer) {
    ASSERT_EQ(answer.prompt_logprobs.size(), expected.prompt_logprobs.size());
    for (size_t i = 0; i < expected.prompt_logprobs.size(); ++i) {
      const request::Sampled &a = answer.prompt_logprobs[i], &b = expected.prompt_logprobs[i];
      EXPECT_EQ(a.token, request.prompt[i + 1]);
      EXPECT_EQ(a.logprob, b.logprob) << "position " << i + 1;
      ASSERT_EQ(a.top.size(), 3u);
      for (size_t j = 0; j < 3; ++j) EXPECT_EQ(a.top[j].token, b.top[j].token);
    }
  };
  for (const int budget : {1, 5, 33}) {
    RigOptions options;
    options.scheduler.max_step_tokens = budget;
    options.scheduler.max_seqs = 1;
    Rig cut(options);
    expect_same(cut.run(request));
  }
  expect_same(whole.run(request));  // every block of the prompt is cached by then
}

TEST(Choices, AreThoseOfOneRequestEachWithItsOwnStream) {
  request::Request request = greedy_request(words(9, 4), 12);
  request.sampling().n = 4;
  request.sampling().method = request::Sampling{.temperature = 1, .seed = 7};
  Rig rig;
  const Answer together = rig.run(request);
  ASSERT_EQ(together.choices.size(), 4u);
  EXPECT_NE(together.tokens(0), together.tokens(1));
  request.sampling().n = 1;
  EXPECT_EQ(rig.run(request).tokens(), together.tokens(0));
  request.sampling().n = 4;
  for (const int budget : {4, 9}) {
    RigOptions options{.block_size = 5};
    options.scheduler.max_step_tokens = budget;
    options.scheduler.max_seqs = 4;
    Rig other(options);
    const Answer again = other.run(request);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(again.tokens(i), together.tokens(i)) << "choice " << i;
  }
}

TEST(Padding, IsComputedAndChangesNothing) {
  const request::Request longer = greedy_request(words(30, 5), 10), shorter = greedy_request(words(3, 6), 10);
  RigOptions padded;
  padded.scheduler.layout = sched::Layout::Padded;
  Rig rig(padded);
  const size_t a = rig.submit(longer), b = rig.submit(shorter);
  rig.finish();
  EXPECT_EQ(rig.answer(a).tokens(), alone(longer));
  EXPECT_EQ(rig.answer(b).tokens(), alone(shorter));
  const engine::Metrics& metrics = rig.engine->metrics();
  EXPECT_GT(metrics.computed_tokens.value(), metrics.run_tokens.value());
  EXPECT_EQ(static_cast<uint64_t>(rig.backend->embedded), metrics.computed_tokens.value());
}

TEST(NotANumber, FailsItsRequestAloneAndIsNotCached) {
  constexpr Token kPoison = 95;
  const request::Request good = greedy_request(words(21, 8), 16), other = greedy_request(words(6, 9), 16);
  request::Request bad = greedy_request(words(20, 10), 16);
  bad.prompt[1] = kPoison;
  Rig rig;
  rig.backend->poison = kPoison;
  const size_t first = rig.submit(good), middle = rig.submit(bad), last = rig.submit(other);
  rig.finish();
  ASSERT_TRUE(rig.answer(middle).error());
  EXPECT_EQ(rig.answer(middle).ends[0].reason, engine::FinishReason::Error);
  EXPECT_TRUE(rig.answer(middle).tokens().empty());
  EXPECT_EQ(rig.answer(first).tokens(), alone(good));
  EXPECT_EQ(rig.answer(last).tokens(), alone(other));

  // The same prompt on a device that got well again computes everything anew.
  rig.backend->poison = -1;
  const Answer again = rig.run(bad);
  EXPECT_FALSE(again.error());
  EXPECT_EQ(again.ends[0].usage.cached_tokens, 0);
  EXPECT_EQ(again.tokens(), alone(bad));
}

TEST(NotANumber, FailsASearchAlone) {
  constexpr Token kPoison = 95;
  request::Request beam = greedy_request(words(10, 11), 8), contrastive = beam;
  beam.prompt[3] = contrastive.prompt[3] = kPoison;
  beam.sampling().method = request::BeamSearch{.width = 3};
  contrastive.sampling().method = request::ContrastiveSearch{};
  const request::Request good = greedy_request(words(12, 12), 8);
  Rig rig;
  rig.backend->poison = kPoison;
  const size_t a = rig.submit(beam), b = rig.submit(contrastive), c = rig.submit(good);
  rig.finish();
  EXPECT_TRUE(rig.answer(a).error());
  EXPECT_TRUE(rig.answer(b).error());
  EXPECT_EQ(rig.answer(c).tokens(), alone(good));
}

TEST(NoTokenLeft, FailsItsRequestAlone) {
  request::Request bad = greedy_request(words(8, 13), 8);
  bad.sampling().allowed_tokens = std::vector<Token>{5};
  bad.sampling().bad_words = {{5}};
  const request::Request good = greedy_request(words(8, 14), 8);
  Rig rig;
  const size_t a = rig.submit(bad), b = rig.submit(good);
  rig.finish();
  EXPECT_TRUE(rig.answer(a).error());
  EXPECT_EQ(rig.answer(b).tokens(), alone(good));
}

TEST(FailedStep, EndsEveryRequestOnceAndTheEngineGoesOn) {
  const request::Request one = greedy_request(words(10, 15), 20);
  request::Request two = greedy_request(words(14, 16), 20);
  two.sampling().method = request::BeamSearch{.width = 2};
  Rig rig;
  const size_t a = rig.submit(one), b = rig.submit(two);
  for (int i = 0; i < 4; ++i) rig.step();
  rig.backend->fail_next = true;
  rig.finish();
  for (const size_t index : {a, b}) {
    ASSERT_TRUE(rig.answer(index).error());
    EXPECT_NE(rig.answer(index).error()->message.find("fell off the bus"), std::string::npos);
  }
  EXPECT_FALSE(rig.engine->health().failed);
  const Answer again = rig.run(one);
  EXPECT_FALSE(again.error());
  EXPECT_EQ(again.ends[0].usage.cached_tokens, 0);
  EXPECT_EQ(again.tokens(), alone(one));
}

TEST(Cancelled, LeavesTheOthersAsTheyAre) {
  const request::Request one = greedy_request(words(10, 17), 20), two = greedy_request(words(14, 18), 20);
  Rig rig;
  const size_t a = rig.submit(one), b = rig.submit(two);
  for (int i = 0; i < 5; ++i) rig.step();
  rig.engine->cancel(engine::RequestId{1});
  rig.finish();
  EXPECT_EQ(rig.answer(a).ends[0].reason, engine::FinishReason::Cancelled);
  EXPECT_LT(rig.answer(a).tokens().size(), 20u);
  EXPECT_EQ(rig.answer(b).tokens(), alone(two));
}

TEST(KvTypes, GiveTheSameAnswerInAnyCompany) {
  const request::Request one = greedy_request(words(25, 19), 12), two = greedy_request(words(40, 20), 12);
  for (const DType type : {DType::F32, DType::F16, DType::BF16, DType::F8_E4M3, DType::I8}) {
    RigOptions options{.model = "windowed", .kv_type = type};
    options.scheduler.max_step_tokens = 11;
    options.scheduler.max_seqs = 4;
    Rig rig(options);
    const size_t a = rig.submit(one), b = rig.submit(two), c = rig.submit(one);
    rig.finish();
    EXPECT_EQ(rig.answer(a).tokens(), alone(one, {.model = "windowed", .kv_type = type})) << name(type);
    EXPECT_EQ(rig.answer(b).tokens(), alone(two, {.model = "windowed", .kv_type = type})) << name(type);
    EXPECT_EQ(rig.answer(c).tokens(), rig.answer(a).tokens()) << name(type);
  }
}

TEST(Amateur, MustShareTheVocabulary) {
  Rig rig;
  models::Model other{.files = {}, .weights = {}, .backend = rig.backend};
  other.files.spec = rig.model->spec();
  other.files.spec.vocab = 7;
  const auto made =
      ModelExecutor::make(*rig.model, &other, {.memory = {.blocks = {4}}, .tiers = {.host_blocks = {0}}});
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("vocabulary of 7"), std::string::npos);
}

}  // namespace
}  // namespace sluice::runtime::test

// A sequence that needs the host waits alone, and a second model costs the requests that ask for it.
#include <gtest/gtest.h>

#include <functional>

#include "rig.h"

namespace sluice::runtime::test {
namespace {

constexpr int kOthers = 64;

RigOptions many() {
  RigOptions options;
  options.ahead = true;
  options.blocks = {1024, 0, 0};
  options.scheduler.max_seqs = 80;
  return options;
}

request::Request greedy(uint32_t i) {
  return greedy_request(words(4, i + 100), 16);
}

// One more request beside 64 greedy ones; what the greedy ones get must not depend on it.
void expect_waits_alone(request::Request request, const char* what) {
  SCOPED_TRACE(what);
  const std::vector<Token> alone = Rig().run(request).tokens();
  Rig plain(many()), rig(many());
  for (uint32_t i = 0; i < kOthers; ++i) plain.submit(greedy(i));
  plain.finish();
  for (uint32_t i = 0; i < kOthers; ++i) rig.submit(greedy(i));
  const size_t other = rig.submit(std::move(request));
  rig.finish();
  ASSERT_FALSE(rig.answer(other).error());
  EXPECT_EQ(rig.answer(other).tokens(), alone);
  for (size_t i = 0; i < kOthers; ++i) EXPECT_EQ(rig.answer(i).tokens(), plain.answer(i).tokens());

  const auto& with = dynamic_cast<const AheadBackend&>(*rig.backend);
  const auto& without = dynamic_cast<const AheadBackend&>(*plain.backend);
  EXPECT_GT(without.repeated_steps, 10);
  EXPECT_GT(without.overlapped, 10);
  EXPECT_EQ(with.downloads, 0);  // nothing waits for the device to read
  EXPECT_GT(with.sent_rows, 0);
  EXPECT_EQ(with.steps(), without.steps());
  EXPECT_EQ(with.repeated_steps, without.repeated_steps);
  EXPECT_EQ(with.overlapped, without.overlapped);
}

TEST(HostSampledSequence, WaitsAlone) {
  const auto kind = [](const char* what, const std::function<void(request::SamplingParams&)>& change) {
    request::Request request = greedy_request(words(6, 7), 5);
    change(request.sampling());
    expect_waits_alone(std::move(request), what);
  };
  using request::SamplingParams;
  kind("bad words", [](SamplingParams& p) { p.bad_words = {{3, 4}, {9}}; });
  kind("typical_p", [](SamplingParams& p) {
    p.method = request::Sampling{.temperature = 1, .typical_p = 0.5, .seed = 3};
  });
  kind("beams", [](SamplingParams& p) { p.method = request::BeamSearch{.width = 3}; });
  kind("contrastive search", [](SamplingParams& p) { p.method = request::ContrastiveSearch{.top_k = 3}; });
}

// It has the token of its last step when the next one with it comes, also where the scheduler does not wait.
TEST(HostSampledSequence, IsSampledBeforeASubmittedStepNeedsItsToken) {
  RigOptions options;
  options.ahead = true;
  Rig rig(options);
  auto request = std::make_shared<request::Request>(greedy_request(words(3, 5), 8));
  request->sampling().bad_words = {{3, 4}};
  const SeqId seq{1};
  for (int i = 0; i < 4; ++i) {
    request::Step step;
    if (i == 0) step.admit.push_back({seq, request, 0});
    const int begin = i == 0 ? 0 : 2 + i;
    step.work.push_back({seq, begin, 3 + i, 2 + i, 0, {}, {}});
    step.tables.groups = 1;
    const std::vector<BlockId> blocks{BlockId{0}, BlockId{1}};
    step.tables.add(std::span(blocks).first(static_cast<size_t>(2 + i) / 4 + 1));
    rig.executor->submit(step);
    if (i == 0) continue;
    ASSERT_TRUE(rig.executor->collect().ok());
  }
  const Result<std::vector<request::Outcome>> last = rig.executor->collect();
  ASSERT_TRUE(last.ok());
  const auto* tokens = std::get_if<request::Tokens>(&last->at(0).result);
  ASSERT_NE(tokens, nullptr);
  EXPECT_EQ(tokens->tokens.at(0).token, Rig().run(*request).tokens().at(3));
}

request::Request contrastive(uint32_t seed, int tokens) {
  request::Request request = greedy_request(words(9, seed), tokens);
  request.sampling().method = request::ContrastiveDecoding{.sampling = {.temperature = 0}};
  return request;
}

int64_t computed(const Rig& rig) {
  return static_cast<int64_t>(rig.engine->metrics().computed_tokens.value());
}

TEST(ContrastModel, RunsOnlyForRequestsThatAskForIt) {
  for (const bool ahead : {false, true}) {
    Rig rig({.amateur = "amateur", .prefix_cache = false, .ahead = ahead});
    for (uint32_t i = 0; i < 3; ++i) rig.submit(greedy_request(words(8, i), 8));
    rig.finish();
    if (!ahead) {  // an asynchronous device pads its steps
      EXPECT_EQ(rig.backend->embedded, computed(rig));
    }
    const int64_t before = rig.backend->embedded - computed(rig);
    const size_t plain = rig.submit(greedy_request(words(8, 1), 8));
    const size_t asked = rig.submit(contrastive(4, 8));
    rig.finish();
    if (!ahead) {
      EXPECT_EQ(rig.backend->embedded - computed(rig) - before, 9 + 7);
    }
    EXPECT_EQ(rig.answer(plain).tokens(), Rig().run(greedy_request(words(8, 1), 8)).tokens());
    EXPECT_EQ(rig.answer(asked).tokens(), Rig({.amateur = "amateur"}).run(contrastive(4, 8)).tokens());
  }
}

// Blocks that the amateur never filled are of no use to it.
TEST(ContrastModel, DoesNotReadWhatOnlyTheModelComputed) {
  Rig rig({.amateur = "amateur"});
  rig.run(greedy_request(words(9, 4), 8));
  const Answer first = rig.run(contrastive(4, 8));
  EXPECT_EQ(first.ends[0].usage.cached_tokens, 0);
  EXPECT_EQ(first.tokens(), Rig({.amateur = "amateur"}).run(contrastive(4, 8)).tokens());
  const Answer again = rig.run(contrastive(4, 8));
  EXPECT_EQ(again.ends[0].usage.cached_tokens, 8);
  EXPECT_EQ(again.tokens(), first.tokens());
}

}  // namespace
}  // namespace sluice::runtime::test

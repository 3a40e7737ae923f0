// The engine on the fake executor: its limits, its events and its threads.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/engine/engine_fixture.h"

namespace sluice::sim {
namespace {

TEST_F(EngineTest, AnswersWithTokensTimesAndUsage) {
  Answer answer;
  Submission submission = ask(answer, 10, 5);
  const std::vector<std::vector<Token>> expected = expected_tokens(submission.request);
  ASSERT_TRUE(engine_->submit(std::move(submission)).ok());
  now_ += std::chrono::milliseconds(30);
  run();
  EXPECT_EQ(answer.tokens, expected);
  ASSERT_EQ(answer.last.size(), 1u);
  EXPECT_EQ(answer.last[0].reason, FinishReason::Length);
  EXPECT_EQ(answer.last[0].usage.prompt_tokens, 10);
  EXPECT_EQ(answer.last[0].usage.generated_tokens, 5);
  EXPECT_NEAR(answer.last[0].timings.queue, 0.03, 1e-9);
  EXPECT_NEAR(answer.last[0].timings.ttft, 0.03, 1e-9);
  EXPECT_NEAR(answer.last[0].timings.tpot, 0.01, 1e-9);
  EXPECT_NEAR(answer.last[0].timings.latency, 0.07, 1e-9);
  EXPECT_EQ(engine_->metrics().ttft.count(), 1u);
  EXPECT_EQ(engine_->metrics().tbt.count(), 4u);
  EXPECT_NEAR(engine_->metrics().tbt.quantile(0.5), 0.01, 0.001);
}

TEST_F(EngineTest, RefusesWhatItCannotTake) {
  engine::EngineOptions options = small_options();
  options.queue = {.requests = 3, .tokens = 30, .bytes = 1 << 20};
  build(options);
  Answer answer;
  EXPECT_EQ(engine_->submit(ask(answer, 0, 5)).error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(engine_->submit(ask(answer, 300, 5)).error().code, ErrorCode::LimitExceeded);
  Submission odd = ask(answer, 3, 5);
  odd.request.prompt[1] = kVocab;
  EXPECT_EQ(engine_->submit(std::move(odd)).error().code, ErrorCode::InvalidArgument);
  ASSERT_TRUE(engine_->submit(ask(answer, 20, 5)).ok());
  EXPECT_EQ(engine_->submit(ask(answer, 20, 5)).error().code, ErrorCode::Unavailable) << "tokens";
  ASSERT_TRUE(engine_->submit(ask(answer, 1, 5)).ok());
  ASSERT_TRUE(engine_->submit(ask(answer, 1, 5)).ok());
  EXPECT_EQ(engine_->submit(ask(answer, 1, 5)).error().code, ErrorCode::Unavailable) << "requests";
  engine_->step();
  EXPECT_TRUE(engine_->submit(ask(answer, 20, 5)).ok()) << "started requests do not wait any more";
  engine_->close();
  EXPECT_EQ(engine_->submit(ask(answer, 1, 5)).error().code, ErrorCode::Unavailable);
  run();
  EXPECT_EQ(answer.last.size(), 4u);
  EXPECT_EQ(engine_->metrics().refused.value(), 6u);
}

TEST_F(EngineTest, CancelsAndExpires) {
  Answer cancelled, expired, other;
  const Result<request::RequestId> id = engine_->submit(ask(cancelled, 8, 50));
  ASSERT_TRUE(id.ok());
  Submission limited = ask(expired, 8, 50);
  limited.time_limit = Seconds(0.05);
  ASSERT_TRUE(engine_->submit(std::move(limited)).ok());
  ASSERT_TRUE(engine_->submit(ask(other, 8, 20)).ok());
  for (int i = 0; i < 3; ++i) engine_->step();
  engine_->cancel(*id);
  engine_->cancel(*id);
  run();
  ASSERT_EQ(cancelled.last.size(), 1u);
  EXPECT_EQ(cancelled.last[0].reason, FinishReason::Cancelled);
  EXPECT_EQ(cancelled.tokens[0].size(), 3u);
  ASSERT_EQ(expired.last.size(), 1u);
  EXPECT_EQ(expired.last[0].reason, FinishReason::Expired);
  ASSERT_EQ(other.last.size(), 1u);
  EXPECT_EQ(other.last[0].reason, FinishReason::Length);
  engine_->cancel(*id);
  run();
  EXPECT_EQ(cancelled.last.size(), 1u);
}

TEST_F(EngineTest, WhoWaitsTooLongForItsTurnEnds) {
  engine::EngineOptions options = small_options();
  options.scheduler.max_seqs = 1;
  options.queue.wait = Seconds(0.05);
  build(options);
  Answer running, waiting, limited;
  ASSERT_TRUE(engine_->submit(ask(running, 8, 50)).ok());
  engine_->step();
  ASSERT_TRUE(engine_->submit(ask(waiting, 8, 5)).ok());
  Submission short_lived = ask(limited, 8, 5);
  short_lived.time_limit = Seconds(0.02);
  ASSERT_TRUE(engine_->submit(std::move(short_lived)).ok());
  run();
  ASSERT_EQ(waiting.last.size(), 1u);
  EXPECT_EQ(waiting.last[0].reason, FinishReason::Expired);
  EXPECT_EQ(waiting.last[0].error->code, ErrorCode::Unavailable);
  EXPECT_NEAR(waiting.last[0].timings.latency, 0.05, 0.011);
  ASSERT_EQ(limited.last.size(), 1u);
  EXPECT_FALSE(limited.last[0].error) << "its own limit came first";
  EXPECT_EQ(running.last[0].reason, FinishReason::Length) << "who has started may take any time";
  Answer later;
  ASSERT_TRUE(engine_->submit(ask(later, 8, 20)).ok());
  run();
  EXPECT_EQ(later.last[0].reason, FinishReason::Length) << "the wait ends with the start";
}

TEST_F(EngineTest, StaticBatchesAnswerAtTheirEnd) {
  engine::EngineOptions options = small_options();
  options.scheduler.scheme = sched::scheme_named("static")->scheme;
  options.scheduler.max_seqs = 2;
  build(options);
  Answer quick, slow;
  ASSERT_TRUE(engine_->submit(ask(quick, 8, 2)).ok());
  ASSERT_TRUE(engine_->submit(ask(slow, 8, 6)).ok());
  for (int i = 0; i < 5; ++i) engine_->step();
  EXPECT_TRUE(quick.tokens.empty());
  EXPECT_TRUE(quick.last.empty());
  run();
  EXPECT_EQ(quick.tokens[0].size(), 2u);
  ASSERT_EQ(quick.last.size(), 1u);
  ASSERT_EQ(slow.last.size(), 1u);
  EXPECT_EQ(quick.last[0].timings.latency, slow.last[0].timings.latency);
}

TEST_F(EngineTest, ReturnsTheBestOfSeveral) {
  Answer answer;
  Submission submission = ask(answer, 8, 4);
  submission.request.sampling().n = 2;
  submission.request.sampling().method = request::Sampling{.best_of = 4};
  const std::vector<std::vector<Token>> all = expected_tokens(submission.request);
  ASSERT_TRUE(engine_->submit(std::move(submission)).ok());
  run();
  const auto score = [](const std::vector<Token>& tokens) {
    double sum = 0;
    for (const Token token : tokens) sum -= 0.5 * (token % 7);
    return sum / static_cast<double>(tokens.size());
  };
  std::vector<std::vector<Token>> best = all;
  std::stable_sort(best.begin(), best.end(),
                   [&](const auto& a, const auto& b) { return score(a) > score(b); });
  best.resize(2);
  EXPECT_EQ(answer.tokens, best);
  EXPECT_EQ(answer.reasons.size(), 2u);
  EXPECT_EQ(answer.last[0].usage.generated_tokens, 16);
}

TEST_F(EngineTest, OnlyTheFailingRequestFails) {
  Answer bad, good;
  executor_->faults.request_fails = [](SeqId seq) { return seq == SeqId{1}; };
  ASSERT_TRUE(engine_->submit(ask(bad, 8, 5)).ok());
  ASSERT_TRUE(engine_->submit(ask(good, 8, 5)).ok());
  run();
  ASSERT_EQ(bad.last.size(), 1u);
  EXPECT_EQ(bad.last[0].reason, FinishReason::Error);
  EXPECT_NE(bad.last[0].error->message.find("not finite"), std::string::npos);
  EXPECT_EQ(good.last[0].reason, FinishReason::Length);
}

TEST_F(EngineTest, AFailedStepFailsAllOnceAndTheEngineGoesOn) {
  Answer first, second, later;
  ASSERT_TRUE(engine_->submit(ask(first, 8, 5)).ok());
  ASSERT_TRUE(engine_->submit(ask(second, 8, 5)).ok());
  engine_->step();
  executor_->faults.step_fails = [] { return true; };
  engine_->step();
  executor_->faults.step_fails = [] { return false; };
  ASSERT_EQ(first.last.size(), 1u);
  ASSERT_EQ(second.last.size(), 1u);
  EXPECT_EQ(first.last[0].reason, FinishReason::Error);
  EXPECT_FALSE(engine_->health().failed);
  ASSERT_TRUE(engine_->submit(ask(later, 8, 5)).ok());
  run();
  EXPECT_EQ(later.last[0].reason, FinishReason::Length);
  engine_->kv_manager().check();
}

class DyingExecutor : public FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;
  Result<std::vector<Outcome>> collect() override { throw std::runtime_error("cable pulled"); }
  Status reset() override { return Error{ErrorCode::Unavailable, "no device"}; }
};

TEST_F(EngineTest, ADeadDeviceIsSaidAtOnce) {
  const engine::EngineOptions options = small_options();
  DyingExecutor dying(options.kv_manager);
  Answer answer;
  Engine engine(options, dying, [this] { return now_; });
  ASSERT_TRUE(engine.submit(ask(answer, 8, 5)).ok());
  engine.step();
  ASSERT_EQ(answer.last.size(), 1u);
  EXPECT_NE(answer.last[0].error->message.find("cable pulled"), std::string::npos);
  EXPECT_TRUE(engine.health().failed);
  EXPECT_EQ(engine.submit(ask(answer, 8, 5)).error().code, ErrorCode::Unavailable);
}

class LosingExecutor : public FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;
  Status alive() const override {
    return lost ? Status(Error{ErrorCode::Unavailable, "rank 1 has ended"}) : Status();
  }
  bool lost = false;
};

TEST_F(EngineTest, ADeviceThatIsLostBetweenRequestsIsSaid) {
  const engine::EngineOptions options = small_options();
  LosingExecutor losing(options.kv_manager);
  Engine engine(options, losing, [this] { return now_; });
  EXPECT_FALSE(engine.health().failed);
  losing.lost = true;
  EXPECT_TRUE(engine.health().failed);
  EXPECT_EQ(engine.health().reason, "rank 1 has ended");
}

// Spells tokens as letters; stops at a word.
class Letters : public engine::TextStream {
 public:
  explicit Letters(std::string stop, size_t fail_after) : stop_(std::move(stop)), fail_after_(fail_after) {}
  Result<Piece> push(std::span<const Token> tokens) override {
    Piece piece;
    for (const Token token : tokens) {
      if (++seen_ > fail_after_) return Error{ErrorCode::Corrupt, "no such letter"};
      const char letter = static_cast<char>('0' + token);
      if (stop_.find(letter) != std::string::npos) {
        piece.stopped = true;
        piece.stop = letter;
        return piece;
      }
      piece.text += letter;
    }
    return piece;
  }
  Result<std::string> finish() override { return std::string("."); }

 private:
  std::string stop_;
  size_t fail_after_, seen_ = 0;
};

TEST_F(EngineTest, TextStopsAndFailsPerRequest) {
  Answer whole, stopped, failed;
  Submission submission = ask(whole, 8, 6);
  const std::vector<Token> tokens = expected_tokens(submission.request)[0];
  submission.text = [](int) { return std::make_unique<Letters>("", 100); };
  ASSERT_TRUE(engine_->submit(std::move(submission)).ok());
  submission = ask(stopped, 8, 6);
  const std::string stop(1, static_cast<char>('0' + tokens[3]));
  submission.text = [stop](int) { return std::make_unique<Letters>(stop, 100); };
  ASSERT_TRUE(engine_->submit(std::move(submission)).ok());
  submission = ask(failed, 8, 6);
  submission.text = [](int) { return std::make_unique<Letters>("", 2); };
  ASSERT_TRUE(engine_->submit(std::move(submission)).ok());
  run();
  EXPECT_EQ(whole.texts[0].size(), 7u);
  EXPECT_EQ(whole.texts[0].back(), '.');
  const auto before =
      static_cast<size_t>(std::find(tokens.begin(), tokens.end(), tokens[3]) - tokens.begin());
  EXPECT_EQ(stopped.texts[0], whole.texts[0].substr(0, before));
  EXPECT_EQ(stopped.last[0].reason, FinishReason::Stop);
  EXPECT_EQ(stopped.stops, std::vector<std::string>{stop});
  EXPECT_EQ(failed.last[0].reason, FinishReason::Error);
  EXPECT_EQ(engine_->kv_manager().sequences(), 0u);
}

// 32 requests with a common beginning of 1,500 tokens compute it once.
TEST_F(EngineTest, SharedPrefixesAreComputedOnce) {
  for (const bool cached : {false, true}) {
    engine::EngineOptions options = small_options();
    options.scheduler.max_seqs = 32;
    options.scheduler.max_step_tokens = 8192;
    options.kv_manager = {
        .block_size = 16, .groups = {{.window = 0, .blocks = {4000}}}, .prefix_cache = cached};
    build(options);
    Answer answer;
    for (int i = 0; i < 32; ++i) {
      Submission submission = ask(answer, 1510, 4);
      submission.request.prompt.back() = 1 + i;
      ASSERT_TRUE(engine_->submit(std::move(submission)).ok());
    }
    run();
    EXPECT_EQ(answer.last.size(), 32u);
    const int64_t prefill = executor_->tokens_run() - 32 * 3;
    EXPECT_LE(prefill, cached ? 32 * 1510 / 10 : 32 * 1510);
    EXPECT_EQ(engine_->metrics().cached_tokens.value(), cached ? 31u * 1504 : 0u);
  }
}

// A burst of one client does not make another wait for all of it.
TEST_F(EngineTest, ABurstDoesNotStarveOthers) {
  std::vector<Answer> burst(200);
  Answer other;
  for (Answer& answer : burst) {
    Submission submission = ask(answer, 8, 8);
    submission.request.client = "burst";
    ASSERT_TRUE(engine_->submit(std::move(submission)).ok());
  }
  engine_->step();
  ASSERT_TRUE(engine_->submit(ask(other, 8, 8)).ok());
  for (int i = 0; i < 24; ++i) engine_->step();
  EXPECT_EQ(other.last.size(), 1u);
  run();
  for (const Answer& answer : burst) EXPECT_EQ(answer.last.size(), 1u);
}

// Whoever is less urgent waits longer, not for ever.
TEST_F(EngineTest, AStreamOfUrgentRequestsDoesNotStarveOthers) {
  std::vector<Answer> urgent(400);
  Answer other;
  size_t next = 0;
  const auto add_urgent = [&](int count) {
    for (; count > 0 && next < urgent.size(); --count) {
      Submission submission = ask(urgent[next++], 8, 4);
      submission.request.priority = 1;
      ASSERT_TRUE(engine_->submit(std::move(submission)).ok());
    }
  };
  add_urgent(8);
  ASSERT_TRUE(engine_->submit(ask(other, 8, 4)).ok());
  for (int i = 0; i < 30; ++i) {
    engine_->step();
    add_urgent(4);  // never fewer than can run
  }
  EXPECT_EQ(other.last.size(), 1u);
  EXPECT_EQ(urgent.back().last.size(), 0u);
  run();
  for (const Answer& answer : urgent) EXPECT_LE(answer.last.size(), 1u);
}

}  // namespace
}  // namespace sluice::sim

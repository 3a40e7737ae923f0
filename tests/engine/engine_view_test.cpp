// What the engine tells about itself: snapshots, the trace of its steps, times.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "tests/engine/engine_fixture.h"

namespace sluice::sim {
namespace {

TEST_F(EngineTest, ShowsItself) {
  using State = engine::Snapshot::Block::State;
  Answer first, second;
  EXPECT_FALSE(engine_->snapshot());
  ASSERT_TRUE(engine_->submit(ask(first, 10, 5)).ok());
  engine_->step();
  std::shared_ptr<const engine::Snapshot> snapshot = engine_->snapshot();
  ASSERT_TRUE(snapshot);
  ASSERT_EQ(snapshot->requests.size(), 1u);
  EXPECT_EQ(snapshot->requests[0].lanes[0].length, 11);
  EXPECT_EQ(snapshot->requests[0].generated, 1);
  EXPECT_EQ(snapshot->step, 1u);
  const auto count = [&](engine::Snapshot::Block block) {
    const std::vector<engine::Snapshot::Block>& blocks = snapshot->groups[0].blocks;
    return std::count(blocks.begin(), blocks.end(), block);
  };
  EXPECT_EQ(count({State::Held, false, request::RequestId{1}}), 3);
  EXPECT_EQ(count({}), 61);
  ASSERT_TRUE(engine_->submit(ask(second, 10, 5)).ok());
  engine_->step();
  snapshot = engine_->snapshot();
  ASSERT_EQ(snapshot->requests.size(), 2u);
  EXPECT_EQ(snapshot->requests[1].cached, 8);
  EXPECT_EQ(count({State::Held, true, request::RequestId{2}}), 2) << "a common prefix of two blocks";
  EXPECT_TRUE(engine_->health().busy);
  now_ += std::chrono::seconds(7);
  EXPECT_NEAR(engine_->health().idle_s, 7, 0.1) << "a watchdog sees that nothing happens";
  run();
  engine_->snapshot();
  engine_->step();
  snapshot = engine_->snapshot();
  EXPECT_TRUE(snapshot->requests.empty());
  EXPECT_GE(count({State::Kept, false, {}}), 2) << "kept for whoever asks the same again";
  EXPECT_FALSE(engine_->health().busy);
}

TEST_F(EngineTest, TracesStepsWhileSomebodyWatches) {
  using engine::WorkKind;
  Answer unseen, seen;
  ASSERT_TRUE(engine_->submit(ask(unseen, 10, 2)).ok());
  run();
  engine::Trace::Cursor cursor;
  EXPECT_TRUE(engine_->trace(cursor).steps.empty()) << "nobody had asked";
  now_ += std::chrono::seconds(1);
  const TimePoint begin = now_;
  ASSERT_TRUE(engine_->submit(ask(seen, 70, 3, 20)).ok());
  run();
  const engine::Trace::Page page = engine_->trace(cursor);
  struct Expected {
    int begin, end;
    WorkKind kind;
  };
  const Expected expected[] = {{0, 64, WorkKind::Prefill},
                               {64, 70, WorkKind::PrefillEnd},
                               {70, 71, WorkKind::Decode},
                               {71, 72, WorkKind::Decode}};
  ASSERT_EQ(page.steps.size(), std::size(expected));
  for (size_t i = 0; i < std::size(expected); ++i) {
    const engine::TracedStep& step = *page.steps[i];
    EXPECT_EQ(step.begin, begin + i * std::chrono::milliseconds(10));
    EXPECT_EQ(step.number, page.steps[0]->number + i);
    ASSERT_EQ(step.work.size(), 1u);
    EXPECT_EQ(step.work[0].request, request::RequestId{2});
    EXPECT_EQ(step.work[0].prompt, 70);
    EXPECT_EQ(step.work[0].begin, expected[i].begin);
    EXPECT_EQ(step.work[0].end, expected[i].end);
    EXPECT_EQ(step.work[0].kind, expected[i].kind);
  }
  ASSERT_EQ(page.ends.size(), 1u);
  EXPECT_EQ(page.ends[0].request, request::RequestId{2});
  EXPECT_EQ(page.ends[0].reason, FinishReason::Length);
  EXPECT_TRUE(engine_->trace(cursor).steps.empty()) << "each step is told once";
  now_ += std::chrono::seconds(11);
  ASSERT_TRUE(engine_->submit(ask(unseen, 10, 2)).ok());
  run();
  EXPECT_TRUE(engine_->trace(cursor).steps.empty()) << "the reader stayed away for too long";
}

TEST(Trace, KeepsTheNewestForEveryReader) {
  engine::Trace trace;
  engine::Trace::Cursor early, late;
  trace.read(early, TimePoint{});
  for (uint64_t i = 1; i <= engine::Trace::kSteps + 10; ++i) trace.add(engine::TracedStep{.number = i});
  const engine::Trace::Page page = trace.read(early, TimePoint{});
  ASSERT_EQ(page.steps.size(), engine::Trace::kSteps);
  EXPECT_EQ(page.steps.front()->number, 11u);
  EXPECT_EQ(trace.read(late, TimePoint{}).steps.size(), engine::Trace::kSteps);
  trace.add(engine::TracedStep{.number = 5000});
  EXPECT_EQ(trace.read(late, TimePoint{}).steps.size(), 1u);
}

// An executor that takes its time in submit() and in collect(), on a clock of its own.
class SlowExecutor : public FakeExecutor {
 public:
  SlowExecutor(const kv::KvManagerOptions& options, int depth, TimePoint& now)
      : FakeExecutor(options, depth), now_(now) {}
  void submit(const Step& step) override {
    now_ += std::chrono::milliseconds(3);
    FakeExecutor::submit(step);
  }
  Result<std::vector<Outcome>> collect() override {
    now_ += std::chrono::milliseconds(4);
    return FakeExecutor::collect();
  }

 private:
  TimePoint& now_;
};

TEST(StepTime, CountsSubmissionAndAddsUp) {
  for (const int depth : {1, 2}) {
    TimePoint now{};
    SlowExecutor executor(small_options().kv_manager, depth, now);
    Engine engine(small_options(), executor, [&] { return now; });
    Answer answer;
    ASSERT_TRUE(engine.submit(ask(answer, 10, 20)).ok());
    while (engine.step()) {
    }
    const engine::Metrics& metrics = engine.metrics();
    EXPECT_EQ(metrics.step_time.count(), 20u);
    EXPECT_NEAR(metrics.step_time.mean(), 0.007, 1e-9) << "depth " << depth;
    EXPECT_EQ(metrics.plan_time.count(), 20u);
    EXPECT_EQ(metrics.commit_time.count(), 20u);
    EXPECT_EQ(metrics.exposed_time.count(), depth == 1 ? 19u : 0u) << "a second step hides the engine's work";
  }
}

// An executor during whose first submit() a request comes in.
class BusyExecutor : public FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;
  void submit(const Step& step) override {
    FakeExecutor::submit(step);
    admitted.push_back(step.admit.size());
    if (submitted) std::exchange(submitted, nullptr)();
  }
  Result<std::vector<Outcome>> collect() override {
    ++collected;
    return FakeExecutor::collect();
  }
  std::function<void()> submitted;
  std::vector<size_t> admitted;  // in each step
  int collected = 0;
};

TEST(Burst, GoesOnBehindItsFirstStep) {
  BusyExecutor executor(small_options().kv_manager, 2);
  Engine engine(small_options(), executor);
  Answer first, second;
  executor.submitted = [&] { ASSERT_TRUE(engine.submit(ask(second, 10, 2, 20)).ok()); };
  ASSERT_TRUE(engine.submit(ask(first, 10, 2)).ok());
  engine.step();
  EXPECT_EQ(executor.admitted, (std::vector<size_t>{1, 1}));
  EXPECT_EQ(executor.collected, 1);
  while (engine.step()) {
  }
  EXPECT_EQ(second.last.size(), 1u);
}

TEST(Histogram, ResolvesATenthOfAMillisecond) {
  engine::Histogram histogram;
  for (int i = 1; i <= 1000; ++i) histogram.record(i * 1e-4);
  EXPECT_NEAR(histogram.quantile(0.5), 0.05, 0.005);
  EXPECT_NEAR(histogram.quantile(0.99), 0.099, 0.009);
  EXPECT_NEAR(histogram.mean(), 0.05005, 1e-9);
  histogram.record(-1);
  histogram.record(1e9);
  EXPECT_EQ(histogram.count(), 1002u);
}

}  // namespace
}  // namespace sluice::sim

// Requests whose first token waits for something outside of the engine.
#include "request/gate.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/engine/engine_fixture.h"

namespace sluice::sim {
namespace {

Submission gated(Answer& answer, const std::shared_ptr<request::Gate>& gate, int prompt, int choices = 1) {
  Submission submission = ask(answer, prompt, 5);
  submission.request.gate = gate;
  submission.request.sampling().n = choices;
  return submission;
}

TEST_F(EngineTest, APromptRunsWhileItsGateIsClosed) {
  for (const int choices : {1, 3}) {
    for (const int prompt : {1, 10, 150}) {
      SCOPED_TRACE(prompt);
      build(small_options());
      const auto gate = std::make_shared<request::Gate>();
      Answer answer, other;
      Submission submission = gated(answer, gate, prompt, choices);
      const std::vector<std::vector<Token>> expected = expected_tokens(submission.request);
      ASSERT_TRUE(engine_->submit(std::move(submission)).ok());
      ASSERT_TRUE(engine_->submit(ask(other, 4, 6, 9)).ok());
      run();
      EXPECT_EQ(other.last.size(), 1u);  // nobody waits with it
      EXPECT_TRUE(answer.tokens.empty());
      EXPECT_TRUE(answer.last.empty());
      const uint64_t before = engine_->metrics().run_tokens.value();
      EXPECT_EQ(before, static_cast<uint64_t>(prompt - 1 + 4 + 5));
      gate->settle({});
      run();
      EXPECT_EQ(answer.tokens, expected);
      ASSERT_EQ(answer.last.size(), 1u);
      EXPECT_EQ(answer.last[0].reason, FinishReason::Length);
      EXPECT_EQ(engine_->metrics().run_tokens.value() - before, static_cast<uint64_t>(5 * choices));
    }
  }
}

TEST_F(EngineTest, AGateThatFailsEndsItsRequestAlone) {
  const auto gate = std::make_shared<request::Gate>(), failed = std::make_shared<request::Gate>();
  failed->settle(Error{ErrorCode::InvalidArgument, "from the beginning"});
  Answer answer, other, early;
  ASSERT_TRUE(engine_->submit(gated(answer, gate, 10)).ok());
  ASSERT_TRUE(engine_->submit(gated(early, failed, 10)).ok());
  ASSERT_TRUE(engine_->submit(ask(other, 4, 20)).ok());
  for (int i = 0; i < 5; ++i) engine_->step();
  gate->settle(Error{ErrorCode::InvalidArgument, "no such thing"});
  run();
  ASSERT_EQ(answer.last.size(), 1u);
  EXPECT_EQ(answer.last[0].reason, FinishReason::Error);
  EXPECT_EQ(answer.last[0].error->message, "no such thing");
  EXPECT_TRUE(answer.tokens.empty());
  ASSERT_EQ(early.last.size(), 1u);
  EXPECT_EQ(early.last[0].error->message, "from the beginning");
  ASSERT_EQ(other.last.size(), 1u);
  EXPECT_EQ(other.last[0].reason, FinishReason::Length);
}

TEST_F(EngineTest, AGateWakesTheEngineAndMayOutliveIt) {
  const auto gate = std::make_shared<request::Gate>(), left = std::make_shared<request::Gate>();
  Answer answer, unfinished;
  engine_->start();
  ASSERT_TRUE(engine_->submit(gated(answer, gate, 6)).ok());
  ASSERT_TRUE(engine_->submit(gated(unfinished, left, 6)).ok());
  gate->settle({});
  while (engine_->metrics().generated_tokens.value() < 5) std::this_thread::yield();
  engine_.reset();
  left->settle({});
  EXPECT_EQ(answer.last.size(), 1u);
  ASSERT_EQ(unfinished.last.size(), 1u);
  EXPECT_EQ(unfinished.last[0].reason, FinishReason::Error);
}

}  // namespace
}  // namespace sluice::sim

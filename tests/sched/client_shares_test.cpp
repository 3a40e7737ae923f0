#include "sched/client_shares.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sched/step_cost.h"

namespace sluice::sched {
namespace {

TimePoint at(double seconds) {
  return TimePoint{} + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
}

TEST(ClientShares, UsageFadesOverTenSeconds) {
  ClientShares shares;
  shares.advance(at(0));
  ClientShares::Client& a = shares.join("a", 2);
  shares.charge(a, 1000);
  EXPECT_DOUBLE_EQ(shares.usage(a), 500) << "per weight";
  shares.advance(at(10));
  EXPECT_NEAR(shares.usage(a), 500 / std::exp(1), 1e-6);
  shares.advance(at(10'000));
  EXPECT_NEAR(shares.usage(a), 0, 1e-6);
}

TEST(ClientShares, OrderOutlivesManyEpochs) {
  ClientShares shares;
  for (int i = 0; i < 1000; ++i) {
    shares.advance(at(7.0 * i));
    for (const char* name : {"a", "b", "c"}) {
      ClientShares::Client& client = shares.join(name, 1);
      shares.set_queued(client, true);
      shares.charge(client, name[0] == 'b' ? 10 : 100 + name[0]);
    }
    ASSERT_EQ(shares.queued().size(), 3u);
    const bool settled = i > 10;  // b came last: it began where a was
    EXPECT_TRUE((*shares.queued().begin())->name == "b" || !settled) << i;
  }
}

TEST(ClientShares, PartsInProportionToWeights) {
  ClientShares shares;
  ClientShares::Client& a = shares.join("a", 1);
  ClientShares::Client& b = shares.join("b", 3);
  EXPECT_DOUBLE_EQ(shares.share(a, 32), 8);
  EXPECT_DOUBLE_EQ(shares.share(b, 32), 24);
  shares.join("a", 3);
  EXPECT_DOUBLE_EQ(shares.share(b, 32), 16) << "the weight that came last counts";
  shares.leave(b);
  EXPECT_DOUBLE_EQ(shares.share(a, 32), 32);
  EXPECT_FALSE(shares.contended());
}

TEST(ClientShares, NewcomersAreNextAndHaveNothingSaved) {
  ClientShares shares;
  ClientShares::Client& a = shares.join("a", 1);
  shares.set_queued(a, true);
  shares.charge(a, 5000);
  ClientShares::Client& b = shares.join("b", 1);
  shares.set_queued(b, true);
  EXPECT_EQ(*shares.queued().begin(), &b);
  EXPECT_EQ(shares.usage(b), 0);
  shares.charge(b, 2);
  EXPECT_EQ(*shares.queued().begin(), &a) << "what a had while it was alone is not held against it";
}

TEST(ClientShares, NobodySavesMoreThanTheWindow) {
  ClientShares shares;
  ClientShares::Client& a = shares.join("a", 1);
  ClientShares::Client& b = shares.join("b", 1);
  shares.set_queued(a, true);
  for (int i = 0; i < 1000; ++i) {  // b has work, and wants next to nothing
    shares.advance(at(i));
    shares.charge(a, 100);
    shares.charge(b, 1);
  }
  shares.set_queued(shares.join("b", 1), true);
  int64_t saved = 0;
  for (; *shares.queued().begin() == &b; ++saved) shares.charge(b, 1);
  EXPECT_NEAR(static_cast<double>(saved), 101 * 10.5, 50);
}

TEST(ClientShares, LeavingAndComingBackHelpsNobody) {
  ClientShares shares;
  ClientShares::Client& a = shares.join("a", 1);
  ClientShares::Client& b = shares.join("b", 1);
  shares.set_queued(a, true);
  shares.charge(a, 100);
  shares.charge(b, 1000);
  shares.leave(b);
  ClientShares::Client& again = shares.join("b", 1);
  shares.set_queued(again, true);
  EXPECT_EQ(*shares.queued().begin(), &a);
}

TEST(ClientShares, ForgetsThoseThatLeftLongAgo) {
  ClientShares shares;
  for (int i = 0; i < 10'000; ++i) {
    shares.advance(at(0.001 * i));
    shares.leave(shares.join("client " + std::to_string(i), 1));
  }
  EXPECT_LE(shares.known(), ClientShares::kMostIdle + 1);
  shares.advance(at(30));
  EXPECT_EQ(shares.known(), 0u);
}

TEST(ClientShares, FairLevelIsMaxMin) {
  EXPECT_TRUE(std::isinf(fair_level({{1, 10}, {1, 20}}, 30)));
  EXPECT_DOUBLE_EQ(fair_level({{1, 100}, {1, 100}}, 60), 30);
  EXPECT_DOUBLE_EQ(fair_level({{1, 10}, {1, 100}, {1, 100}}, 60), 25) << "what one leaves the others share";
  EXPECT_DOUBLE_EQ(fair_level({{1, 100}, {2, 100}}, 60), 20);
  EXPECT_DOUBLE_EQ(fair_level({{1, 5}}, 0), 0);
}

TEST(StepCost, LearnsTheFixedPartAndTheTokens) {
  StepCost cost;
  EXPECT_FALSE(cost.known());
  for (int i = 0; i < 40; ++i) cost.observe(i % 4 == 0 ? 400 : 10, i % 4 == 0 ? 0.83 : 0.05);
  EXPECT_NEAR(cost.seconds(0), 0.03, 1e-3);
  EXPECT_NEAR(static_cast<double>(cost.tokens_within(0.5)), 235, 2);
}

TEST(StepCost, IsCautiousWhereAllStepsWereAlike) {
  StepCost cost;
  for (int i = 0; i < 40; ++i) cost.observe(10, 0.05);
  EXPECT_NEAR(cost.seconds(100), 0.5, 1e-9);
  EXPECT_NEAR(static_cast<double>(cost.tokens_within(0.5)), 100, 1);
}

TEST(StepCost, KeepsTheTimeOfATokenWhileStepsAreAlike) {
  StepCost cost;
  for (int i = 0; i < 40; ++i) cost.observe(i % 4 == 0 ? 400 : 10, i % 4 == 0 ? 0.83 : 0.05);
  for (int i = 0; i < 400; ++i) cost.observe(10, 0.06);
  EXPECT_NEAR(cost.seconds(10), 0.06, 1e-3) << "what a step costs in any case is learned on";
  EXPECT_NEAR(cost.seconds(400) - cost.seconds(10), 0.78, 1e-2);
}

}  // namespace
}  // namespace sluice::sched

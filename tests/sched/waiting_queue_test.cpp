#include "sched/waiting_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "sched/scheduler.h"

namespace sluice::sched {
namespace {

class WaitingQueueTest : public ::testing::Test {
 protected:
  RequestState& add(const std::string& client, int prompt, int priority = 0, double deadline = 0) {
    auto request = std::make_shared<request::Request>();
    request->client = client;
    request->priority = priority;
    request->prompt.resize(static_cast<size_t>(prompt));
    if (deadline > 0)
      request->first_token_by = TimePoint{} + std::chrono::duration_cast<Clock::duration>(Seconds(deadline));
    RequestState& entry = *entries_.emplace_back(std::make_unique<RequestState>());
    entry.request = request;
    entry.client = &shares_.join(client, 1);
    queue_.push(entry, Seconds{0.001 * prompt});
    return entry;
  }
  // Takes the next request of the client that was served least, pays for it, and says whose it was.
  std::string serve() {
    RequestState& entry = *queue_.front(**shares_.queued().begin());
    take(entry);
    shares_.charge(*entry.client, entry.prompt_size());
    return entry.request->client;
  }
  void take(RequestState& entry) {
    queue_.remove(entry);
    queue_.note_start(*entry.client);
  }

  std::vector<std::unique_ptr<RequestState>> entries_;
  ClientShares shares_;
  WaitingQueue queue_{shares_};
};

TEST_F(WaitingQueueTest, SharesTokensNotRequests) {
  for (int i = 0; i < 10; ++i) add("long", 100);
  for (int i = 0; i < 40; ++i) add("short", 25);
  std::vector<int> tokens(2);
  for (int i = 0; i < 25; ++i) {
    const bool is_long = serve() == "long";
    tokens[is_long] += is_long ? 100 : 25;
    EXPECT_LE(std::abs(tokens[0] - tokens[1]), 100);
  }
}

TEST_F(WaitingQueueTest, GeneratedTokensCountToo) {
  for (int i = 0; i < 4; ++i) add("busy", 10);
  for (int i = 0; i < 4; ++i) add("quiet", 10);
  EXPECT_EQ(serve(), "busy");
  shares_.charge(*entries_[0]->client, 1000);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(serve(), "quiet");
  EXPECT_EQ(serve(), "busy") << "what was had before does not keep the machine idle";
}

TEST_F(WaitingQueueTest, GoesBySlackWithinAClient) {
  add("a", 10);                                // has 30 s
  RequestState& late = add("a", 10, 0, 5);     // must start after 4.99 s
  RequestState& large = add("a", 2000, 0, 6);  // must start after 4 s
  RequestState& lax = add("a", 10, 0, 100);    // later than one without a deadline
  RequestState& urgent = add("a", 10, 1, 100);
  const WaitingQueue::Client& client = *urgent.client;
  for (RequestState* next : {&urgent, &large, &late, entries_[0].get(), &lax}) {
    ASSERT_EQ(queue_.front(client), next);
    take(*next);
  }
  EXPECT_EQ(queue_.front(client), nullptr);
}

TEST_F(WaitingQueueTest, CountsWhatIsAhead) {
  for (const double deadline : {3.0, 1.0, 2.0}) add("a", 100, 0, deadline);
  add("a", 7, 1);
  const WaitingQueue::Ahead ahead =
      queue_.ahead_of(*entries_[0]->client, 0, TimePoint{} + std::chrono::milliseconds(2500));
  EXPECT_EQ(ahead.requests, 3);
  EXPECT_EQ(ahead.tokens, 207);
  EXPECT_EQ(queue_.tokens(), 307);
}

TEST_F(WaitingQueueTest, KnowsTheYoungest) {
  RequestState& first = add("a", 10);
  RequestState& second = add("a", 10, 5);
  EXPECT_EQ(queue_.youngest(*first.client), &second);
  take(second);
  second.phase = Phase::Dropped;
  queue_.push(second);
  EXPECT_EQ(queue_.youngest(*first.client), &first) << "one that has started is not waiting";
  EXPECT_EQ(queue_.front(*first.client), &second);
}

TEST_F(WaitingQueueTest, EveryEighthStartIsTheOldests) {
  RequestState& old = add("a", 1);
  for (int i = 0; i < 20; ++i) add("a", 1, 1);
  int starts = 1;
  while (queue_.front(*old.client) != &old) take(*queue_.front(*old.client)), ++starts;
  EXPECT_EQ(starts, 8);
}

// The cost of planning, counted in requests and clients looked at, with few and with very many requests
// waiting.
uint64_t planning_cost(int waiting, bool many_clients) {
  kv::KvManager kv_manager({.block_size = 16, .groups = {{.window = 0, .blocks = {64}}}});
  Scheduler scheduler({.max_seqs = 8, .max_step_tokens = 64}, kv_manager);
  for (int i = 0; i < waiting; ++i) {
    request::Request request{.id = request::RequestId{static_cast<uint64_t>(i) + 1},
                             .prompt = std::vector<Token>(8, i)};
    request.client = many_clients ? std::to_string(i) : std::to_string(i % 3);
    request.sampling().max_tokens = 4;
    scheduler.add(std::move(request));
  }
  const uint64_t before = scheduler.planning_operations();
  for (int i = 0; i < 50; ++i) {
    const request::Step step = scheduler.plan(TimePoint{});
    std::vector<request::Outcome> outcomes;
    for (const request::Work& work : step.work) {
      if (work.sample_from == work.end) continue;
      request::Outcome& outcome = outcomes.emplace_back();
      outcome.seq = work.seq;
      std::get<request::Tokens>(outcome.result).tokens.push_back({1, 0, {}});
    }
    scheduler.commit(step, std::move(outcomes));
  }
  return scheduler.planning_operations() - before;
}

TEST(Scheduler, PlanningDoesNotDependOnHowManyWait) {
  for (const bool many_clients : {false, true}) {
    const uint64_t few = planning_cost(200, many_clients);
    const uint64_t many = planning_cost(100'000, many_clients);
    EXPECT_LE(many, few + few / 10) << "with " << (many_clients ? "a client each" : "three clients");
    EXPECT_LE(many, 50u * 8 * 8) << "linear in the running set";
  }
}

}  // namespace
}  // namespace sluice::sched

#include "sched/waiting_queue.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sched/scheduler.h"

namespace sluice::sched {
namespace {

Entry entry_of(std::string client, int prompt, int priority = 0) {
  auto request = std::make_shared<Request>();
  request->client = std::move(client);
  request->priority = priority;
  request->prompt.resize(static_cast<size_t>(prompt));
  Entry entry;
  entry.request = request;
  return entry;
}

// Takes the front, pays for it, and says whose it was.
std::string serve(WaitingQueue& queue) {
  Entry& entry = *queue.front();
  queue.remove(entry);
  queue.charge(entry.request->client, entry.prompt_size());
  return entry.request->client;
}

TEST(WaitingQueue, SharesTokensNotRequests) {
  WaitingQueue queue(100);
  std::vector<Entry> entries;
  for (int i = 0; i < 10; ++i) entries.push_back(entry_of("long", 100));
  for (int i = 0; i < 40; ++i) entries.push_back(entry_of("short", 25));
  for (Entry& entry : entries) queue.push(entry);
  std::vector<int> tokens(2);
  for (int i = 0; i < 25; ++i) {
    const bool is_long = serve(queue) == "long";
    tokens[is_long] += is_long ? 100 : 25;
    EXPECT_LE(std::abs(tokens[0] - tokens[1]), 100);
  }
}

TEST(WaitingQueue, GeneratedTokensCountToo) {
  WaitingQueue queue(100);
  std::vector<Entry> entries;
  for (int i = 0; i < 4; ++i) entries.push_back(entry_of("busy", 10));
  for (int i = 0; i < 4; ++i) entries.push_back(entry_of("quiet", 10));
  for (Entry& entry : entries) queue.push(entry);
  EXPECT_EQ(serve(queue), "busy");
  queue.charge("busy", 1000);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(serve(queue), "quiet");
  EXPECT_EQ(serve(queue), "busy") << "debt does not keep the machine idle";
}

TEST(WaitingQueue, ForgetsClientsThatHaveLeft) {
  WaitingQueue queue(100);
  for (int i = 0; i < 1000; ++i) {
    Entry entry = entry_of("client " + std::to_string(i), 10);
    queue.push(entry);
    serve(queue);
    queue.left(entry.request->client);
  }
  EXPECT_EQ(queue.clients(), 0u);
  EXPECT_TRUE(queue.empty());
}

// The cost of planning, counted in requests and clients looked at, with few and with very many requests
// waiting.
uint64_t planning_cost(int waiting, bool many_clients) {
  cache::KvLedger ledger({.block_size = 16, .groups = {{.window = 0, .blocks = {64}}}});
  Scheduler scheduler({.max_seqs = 8, .max_step_tokens = 64}, ledger);
  for (int i = 0; i < waiting; ++i) {
    Request request{.id = RequestId{static_cast<uint64_t>(i) + 1}, .prompt = std::vector<Token>(8, i)};
    request.client = many_clients ? std::to_string(i) : std::to_string(i % 3);
    request.sampling().max_tokens = 4;
    scheduler.add(std::move(request));
  }
  const uint64_t before = scheduler.planning_operations();
  for (int i = 0; i < 50; ++i) {
    const Step step = scheduler.plan(TimePoint{});
    std::vector<Outcome> outcomes;
    for (const Work& work : step.work) {
      if (work.sample_from == work.end) continue;
      Outcome& outcome = outcomes.emplace_back();
      outcome.seq = work.seq;
      std::get<Tokens>(outcome.result).tokens.push_back({1, 0, {}});
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

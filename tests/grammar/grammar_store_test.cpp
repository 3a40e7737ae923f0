#include "grammar/grammar_store.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "tests/grammar/support.h"

namespace sluice::grammar {
namespace {

request::Constraint schema(const std::string& text) {
  return {request::JsonSchema{.schema = text}, ""};
}

TEST(GrammarStore, CompilesOnceAndFinds) {
  GrammarStore store(byte_vocabulary());
  const request::Constraint wanted = schema(R"({"type":"integer"})");
  EXPECT_EQ(store.find(wanted), nullptr);
  const auto first = store.get(wanted);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(store.find(wanted), *first);
  const auto again = store.get(wanted);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *first);
  EXPECT_EQ(store.statistics().compiled, 1);
  EXPECT_EQ(store.statistics().hits, 1);
}

TEST(GrammarStore, ManyAskAtOnce) {
  GrammarStore store(byte_vocabulary(), {.workers = 2});
  constexpr int kAsked = 64;
  std::latch done(kAsked);
  std::atomic<int> good = 0;
  for (int i = 0; i < kAsked; ++i)
    store.get(schema(R"({"type":"integer","minimum":)" + std::to_string(i % 8) + "}"),
              [&](Result<GrammarStore::Grammar> one) {
                good += one.ok() ? 1 : 0;
                done.count_down();
              });
  done.wait();
  EXPECT_EQ(good, kAsked);
  EXPECT_EQ(store.statistics().compiled, 8);
}

TEST(GrammarStore, RefusesAtOnce) {
  GrammarStore store(byte_vocabulary());
  bool told = false;
  store.get(schema(R"({"type":"nothing"})"), [&](Result<GrammarStore::Grammar> one) { told = !one.ok(); });
  EXPECT_TRUE(told);
  EXPECT_FALSE(store.get({request::ContextFree{.grammar = "root ::= nowhere"}, ""}).ok());
  EXPECT_EQ(store.statistics().failed, 1);
}

TEST(GrammarStore, KeepsWithinItsBytesAndWhatSomebodyHolds) {
  GrammarStore store(byte_vocabulary(), {.bytes = 1});
  const auto held = store.get(schema(R"({"type":"integer"})"));
  ASSERT_TRUE(held.ok());
  {
    const auto dropped = store.get(schema(R"({"type":"string"})"));
    ASSERT_TRUE(dropped.ok());
  }
  ASSERT_TRUE(store.get(schema(R"({"type":"boolean"})")).ok());
  EXPECT_EQ(store.statistics().entries, 1U);
  EXPECT_EQ(store.find(schema(R"({"type":"integer"})")), *held);
  const auto is_dropped = [&] { return store.find(schema(R"({"type":"string"})")) == nullptr; };
  for (int i = 0; i < 3000 && !is_dropped(); ++i)  // behind the answer
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(is_dropped());
}

TEST(GrammarStore, LateGrammarsFailAlone) {
  GrammarStore store(byte_vocabulary(), {.time_limit = Seconds(0)});
  std::promise<bool> late;
  store.get(schema(R"({"type":"array","items":{"type":"string","format":"email"}})"),
            [&](Result<GrammarStore::Grammar> one) { late.set_value(one.ok()); });
  late.get_future().wait();  // an error, or the grammar where the worker was faster than the watcher
  GrammarStore patient(byte_vocabulary());
  EXPECT_TRUE(patient.get(schema(R"({"type":"integer"})")).ok());
}

// 20: that runs when idle.
std::vector<int> niceness_of_workers() {
  std::vector<int> all;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    if (name != "grammar") continue;
    const int thread = std::stoi(task.path().filename().string());
    all.push_back(
        sched_getscheduler(thread) == SCHED_IDLE ? 20 : getpriority(PRIO_PROCESS, static_cast<id_t>(thread)));
  }
  return all;
}

// Threads that compile have less of a core than those that compute tokens.
TEST(GrammarStore, WorkersGiveWay) {
  GrammarStore store(byte_vocabulary());
  ASSERT_TRUE(store.get(schema(R"({"type":"integer"})")).ok());
  const std::vector<int> workers = niceness_of_workers();
  EXPECT_GE(workers.size(), 1u);  // a second one comes where a loaded machine makes the first slow
  for (const int niceness : workers) EXPECT_GE(niceness, 10);
}

// While many grammars wait their worker has less still; the next ones have a worker as before.
TEST(GrammarStore, ACrowdIsCompiledByAWorkerThatGivesWayFurther) {
  GrammarStore store(byte_vocabulary());
  constexpr int kAsked = 200;
  std::latch done(kAsked);
  std::atomic<int> lowered = 0;
  const auto is_lowered = [](int niceness) { return niceness == 20; };
  const int usual = getpriority(PRIO_PROCESS, 0);
  for (int i = 0; i < kAsked; ++i)
    store.get(schema(R"({"type":"array","items":{"type":"string","format":"email"},"minItems":)" +
                     std::to_string(i) + "}"),
              [&](const Result<GrammarStore::Grammar>&) {
                if (std::ranges::any_of(niceness_of_workers(), is_lowered)) ++lowered;
                EXPECT_EQ(getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())), usual);
                done.count_down();
              });
  done.wait();
  EXPECT_GT(lowered, 0);
  for (int i = 0; i < 3000 && std::ranges::any_of(niceness_of_workers(), is_lowered); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // who runs when idle may be late
  EXPECT_TRUE(std::ranges::none_of(niceness_of_workers(), is_lowered));
  EXPECT_TRUE(store.get(schema(R"({"type":"integer"})")).ok());
}

// Nothing of a schema is read where there is no place for its grammar.
TEST(GrammarStore, AFullQueueRefusesBeforeItReads) {
  GrammarStore store(byte_vocabulary(), {.waiting = 0});
  const auto refused = store.get(schema(R"({"type":"nothing"})"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::Unavailable);
}

TEST(GrammarStore, SlowGrammarsKeepNobodyWaiting) {
  std::atomic<bool> done = false;
  GrammarStore store(byte_vocabulary(), {.time_limit = Seconds(600)});
  std::string many = R"({"anyOf":[)";
  for (int i = 0; i < 1500; ++i)
    many += (i > 0 ? "," : "") +
            std::string(R"({"type":"array","minItems":900,"items":{"pattern":"^[a-z]{1,)") +
            std::to_string(i % 90 + 9) + R"(}x{7,9}(ab|cd)+$"}})";
  many += "]}";
  store.get(schema(many), [&](const Result<GrammarStore::Grammar>&) { done = true; });
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(store.get(schema(R"({"type":"integer","minimum":)" + std::to_string(i) + "}")).ok());
  EXPECT_FALSE(done) << "the slow grammar was not slow";
}

TEST(GrammarStore, KeysTellConstraintsApart) {
  using namespace request;
  const Constraint all[] = {
      {JsonSchema{"{}"}, ""},         {JsonSchema{"{}", true}, ""}, {JsonSchema{"{}", false, false}, ""},
      {JsonSchema{"{}"}, "</think>"}, {JsonObject{}, ""},           {Pattern{"{}"}, ""},
      {Choice{{"a", "b"}}, ""},       {Choice{{"ab"}}, ""},         {ContextFree{.grammar = "{}"}, ""},
      {StructuralTag{"{}"}, ""}};
  for (const Constraint& a : all) {
    for (const Constraint& b : all) EXPECT_EQ(key_of(a) == key_of(b), a == b);
  }
}

}  // namespace
}  // namespace sluice::grammar

// The engine under many requests and many threads.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "engine/event_queue.h"
#include "tests/engine/answer.h"

namespace sluice::sim {
namespace {

using engine::EventQueue;

// Bytes that this thread's heap has handed out; 0 where a sanitizer has replaced it.
int64_t heap_in_use() {
  const struct mallinfo2 heap = mallinfo2();
  return static_cast<int64_t>(heap.uordblks + heap.hblkhd);
}

TEST(EngineLoad, MemoryStaysFlatOverManyRequests) {
  const engine::EngineOptions options = small_options();
  FakeExecutor executor(options.kv_manager);
  executor.check_kv = false;
  TimePoint now{};
  Engine engine(options, executor, [&] { return now; });
  const auto run = [&] {
    while (engine.step()) now += std::chrono::milliseconds(1);
  };
  int64_t early = 0;
  int finished = 0;
  for (int i = 0; i < 100'000; ++i) {
    Submission submission;
    submission.request.prompt = {1 + i % 50, 1 + i / 50 % 50, 1 + i / 2500 % 50, 4, 5, 6};
    submission.request.client = std::to_string(i);
    submission.request.sampling().max_tokens = 2;
    submission.time_limit = Seconds(3600);
    submission.deliver = [&](Event event) { finished += std::holds_alternative<Finished>(event); };
    ASSERT_TRUE(engine.submit(std::move(submission)).ok());
    if (i % 4 == 3) run();
    if (i == 20'000) early = heap_in_use();
  }
  run();
  EXPECT_EQ(finished, 100'000);
  EXPECT_LE(heap_in_use() - early, 64 << 10);
  EXPECT_EQ(executor.sequences(), 0u);
}

// Many threads ask, cancel and look on while the engine runs in its own.
TEST(EngineThreads, GiveEveryRequestOneLastEvent) {
  engine::EngineOptions options = small_options();
  options.queue.requests = 50;
  FakeExecutor executor(options.kv_manager);
  Engine engine(options, executor);
  engine.start();
  std::atomic<int> accepted{0}, ended{0}, refused{0};
  std::vector<std::thread> clients;
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      for (int i = 0; i < 100; ++i) {
        auto queue = std::make_shared<EventQueue>();
        Answer unused;
        Submission submission = ask(unused, 4 + i % 9, 3 + i % 5, client);
        submission.deliver = [queue](Event event) { queue->push(std::move(event)); };
        const Result<request::RequestId> id = engine.submit(std::move(submission));
        ++(id.ok() ? accepted : refused);
        if (!id.ok()) continue;
        if (i % 7 == 0) engine.cancel(*id);
        while (!std::holds_alternative<Finished>(queue->pop())) {
        }
        ++ended;
        EXPECT_FALSE(queue->try_pop().has_value());
      }
    });
  }
  engine::Trace::Cursor cursor;
  for (int i = 0; i < 50; ++i) {
    engine.snapshot();
    engine.trace(cursor);
    engine.health();
    engine.metrics().ttft.quantile(0.9);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (std::thread& client : clients) client.join();
  engine.close();
  engine.wait_idle();
  engine.stop();
  EXPECT_EQ(accepted.load(), ended.load());
  EXPECT_EQ(accepted + refused, 400);
}

TEST(EngineThreads, StoppingEndsWhatIsLeft) {
  const engine::EngineOptions options = small_options();
  FakeExecutor executor(options.kv_manager);
  std::atomic<int> ended{0};
  {
    Engine engine(options, executor);
    for (int i = 0; i < 20; ++i) {
      Answer unused;
      Submission submission = ask(unused, 8, 200);
      submission.deliver = [&](Event event) { ended += std::holds_alternative<Finished>(event); };
      ASSERT_TRUE(engine.submit(std::move(submission)).ok());
    }
    engine.start();
  }
  EXPECT_EQ(ended.load(), 20);
}

}  // namespace
}  // namespace sluice::sim

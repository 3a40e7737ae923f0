#include "server/core/prepare_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <string>

#include "tests/server/rig.h"

namespace sluice::server {
namespace {

using Job = PreparePool::Job;

// Work that goes on, and lets others have their turn, until it is told to end.
struct Endless {
  std::atomic<bool> begun{false}, over{false};
  std::atomic<PreparePool::Stop> why{PreparePool::Stop::None};

  std::function<void(Job&)> work() {
    return [this](Job& job) {
      begun = true;
      while (!over && job.check()) std::this_thread::yield();
      why = job.stopped();
      over = true;
    };
  }
};

TEST(PreparePool, PausesAJobWhileOthersWait) {
  Endless first, second;
  std::atomic<bool> done{false};
  PreparePool pool({.slots = 1, .turn = 0.001});
  pool.post("a", first.work());
  ASSERT_TRUE(eventually([&] { return first.begun.load(); }));
  pool.post("a", second.work());
  pool.post("b", [&](Job&) { done = true; });
  EXPECT_TRUE(eventually([&] { return done.load(); })) << "it does not wait for the first client's jobs";
  EXPECT_FALSE(second.begun) << "a client does not take turns with itself";
  first.over = true;
  EXPECT_TRUE(eventually([&] { return second.begun.load(); }));
  second.over = true;
}

TEST(PreparePool, GoesRoundTheClients) {
  std::atomic<bool> go{false};
  std::mutex mutex;
  std::string order;
  PreparePool pool({.slots = 1});
  pool.post("x", [&](Job&) { go.wait(false); });
  for (const char* name : {"a1", "a2", "a3", "b1", "c1"})
    pool.post(std::string_view(name, 1), [&, name](Job&) {
      const std::lock_guard lock(mutex);
      order += name;
    });
  go = true;
  go.notify_all();
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return order.size() == 10;
  }));
  EXPECT_EQ(order, "a1b1c1a2a3");
}

TEST(PreparePool, StopsWhatIsCancelledOrTakesTooLong) {
  Endless cancelled, slow;
  bool ran = false;
  PreparePool pool({.slots = 1, .turn = 0.001}), limited({.slots = 1, .time_limit = 0.05, .turn = 0.001});
  const std::shared_ptr<Job> running = pool.post("a", cancelled.work());
  ASSERT_TRUE(eventually([&] { return cancelled.begun.load(); }));
  const std::shared_ptr<Job> waiting = pool.post("a", [&](Job&) { ran = true; });
  pool.cancel(*waiting);
  pool.cancel(*running);
  EXPECT_TRUE(eventually([&] { return cancelled.over.load(); }));
  EXPECT_EQ(cancelled.why, PreparePool::Stop::Cancelled);
  limited.post("a", [&](Job& job) {  // yields to nobody: its limit is one of the processor's time
    while (job.check()) {
    }
    slow.why = job.stopped();
    slow.over = true;
  });
  EXPECT_TRUE(eventually([&] { return slow.over.load(); }));
  EXPECT_EQ(slow.why, PreparePool::Stop::TimeLimit);
  EXPECT_FALSE(ran);
}

TEST(PreparePool, EndsWithWorkThatRunsIsPausedAndWaits) {
  std::vector<Endless> jobs(20);
  {
    PreparePool pool({.slots = 2, .turn = 0.001});
    for (size_t i = 0; i < jobs.size(); ++i) pool.post(std::to_string(i), jobs[i].work());
    ASSERT_TRUE(eventually([&] { return jobs[3].begun.load(); })) << "more than there are slots";
  }
  for (const Endless& job : jobs) EXPECT_EQ(job.begun, job.over);
}

TEST(PreparePool, KnowsHowLongAJobGivesNoSignOfLife) {
  std::atomic<bool> go{false};
  PreparePool pool({.slots = 1});
  EXPECT_EQ(pool.stalled(), 0);
  pool.post("a", [&](Job&) { go.wait(false); });
  EXPECT_TRUE(eventually([&] { return pool.stalled() > 0.05; }));
  go = true;
  go.notify_all();
  EXPECT_TRUE(eventually([&] { return pool.stalled() == 0; }));
}

std::atomic<bool> reader_hangs{false};

api::Reply read_without_progress(const api::Call&) {
  reader_hangs.wait(true);
  return api::Answer{200, "application/json", "{}"};
}

TEST(PreparePool, AReaderThatHangsIsUnhealthy) {
  reader_hangs = true;
  RigOptions options;
  options.server.watchdog = 0.1;
  options.operations = {
      {"POST", "/v1/chat/completions", api::Dialect::OpenAi, true, "", read_without_progress}};
  Rig rig(options);
  Client client = rig.connect();
  client.send(post("{}"));
  EXPECT_TRUE(eventually([&] { return rig.ask(get("/health")).status == 503; }));
  reader_hangs = false;
  reader_hangs.notify_all();
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_TRUE(eventually([&] { return rig.ask(get("/health")).status == 200; }));
}

api::Reply tell_niceness(const api::Call&) {
  return api::Answer{200, "text/plain",
                     std::to_string(getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())))};
}

TEST(PreparePool, LargeBodiesAndPicturesAreReadByThreadsThatGiveWay) {
  RigOptions options;
  options.operations = {{"POST", "/v1/chat/completions", api::Dialect::OpenAi, true, "", tell_niceness}};
  Rig rig(options);
  const int small = std::stoi(rig.ask(post("{}")).body);
  const int large = std::stoi(rig.ask(post(std::string(100'000, ' '))).body);
  EXPECT_EQ(large, std::max(small, 19));
  for (const char* field : {R"({"type": "image_url"})", R"({"type":"input_image"})", R"({"images": []})"})
    EXPECT_EQ(std::stoi(rig.ask(post(field)).body), large) << field;
  EXPECT_EQ(std::stoi(rig.ask(post(R"({"content": "an image"})")).body), small);
}

// What `done` does may need locks, which a thread of low priority would hold for long.
TEST(PreparePool, TellsTheEndFromAThreadOfNormalPriority) {
  PreparePool pool({.slots = 1, .turn = 0.001, .niceness = 7});
  const auto own_niceness = [] { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); };
  const int usual = own_niceness();
  std::promise<int> worked, done;
  pool.post(
      "a", [&](Job&) { worked.set_value(own_niceness()); }, [&] { done.set_value(own_niceness()); });
  EXPECT_EQ(worked.get_future().get(), std::max(usual, 7));
  EXPECT_EQ(done.get_future().get(), usual);
}

// As of threads of normal priority.
TEST(PreparePool, JobsOfLowPriorityTakeTurns) {
  PreparePool pool({.slots = 1, .turn = 0.001, .niceness = 7});
  std::atomic<bool> other_ran{false};
  std::promise<bool> ended;
  pool.post("long", [&](Job& job) {
    const TimePoint end = after(20);
    while (!other_ran && Clock::now() < end && job.check().ok()) {
    }
    ended.set_value(other_ran);
  });
  pool.post("short", [&](Job&) { other_ran = true; });
  EXPECT_TRUE(ended.get_future().get());
}

}  // namespace
}  // namespace sluice::server

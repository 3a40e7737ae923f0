// What docs/faults.md promises and no other file here shows: waiting, reading, draining and numbers that are none.
#include <cstdlib>

#include "tests/server/rig.h"

namespace sluice::server {
namespace {

TEST(Faults, WhoWaitsTooLongIsSentAway) {
  RigOptions options;
  options.engine.scheduler.max_seqs = 1;
  options.engine.queue.wait = Seconds(0.3);
  Rig rig(options);
  rig.executor.step_us = 20'000;
  Client first = rig.connect();
  first.send(stream_of(200));
  EXPECT_EQ(first.read_head().status, 200);
  const Response late = rig.ask(post("{}"));
  EXPECT_EQ(late.status, 503);
  EXPECT_TRUE(late.fields.contains("retry-after"));
  EXPECT_NE(late.body.find("server_is_overloaded"), std::string::npos) << late.body;
  const Response anthropic = rig.ask(post("{}", "", "/v1/messages"));
  EXPECT_EQ(anthropic.status, 529);
  EXPECT_NE(anthropic.body.find("overloaded_error"), std::string::npos) << anthropic.body;
  EXPECT_EQ(rig.engine().metrics().expired.value(), 2u);
  EXPECT_EQ(rig.metrics().troubles(RejectReason::Overload), 2u);
  first.close();
  EXPECT_TRUE(eventually([&] { return rig.ask(post(R"({"max_tokens":2})")).status == 200; }));
}

std::atomic<int> reads_begun{0};
std::atomic<bool> reads_go_on{false};

api::Reply read_slowly(const api::Call&) {
  ++reads_begun;
  reads_go_on.wait(false);
  return api::Answer{200, "application/json", "{}"};
}

TEST(Faults, ARequestWhoseClientIsGoneIsNotRead) {
  reads_begun = 0;
  reads_go_on = false;
  RigOptions options;
  options.server.prepare_threads = 1;
  options.operations = {{"POST", "/v1/chat/completions", api::Dialect::OpenAi, true, "", read_slowly}};
  Rig rig(options);
  Client first = rig.connect(), gone = rig.connect();
  first.send(post("{}"));
  ASSERT_TRUE(eventually([&] { return reads_begun == 1; }));
  gone.send(post(std::string(30'000, ' ')));  // read by the same threads
  ASSERT_TRUE(eventually([&] { return rig.metrics().jobs == 2; }));
  gone.reset();
  EXPECT_TRUE(eventually([&] { return rig.metrics().requests == 1 && rig.metrics().body_bytes < 1000; }))
      << "its place and its bytes are free while it waits for its turn";
  reads_go_on = true;
  reads_go_on.notify_all();
  EXPECT_EQ(first.read_response().status, 200);
  EXPECT_TRUE(eventually([&] { return rig.metrics().jobs == 0; }));
  EXPECT_EQ(reads_begun, 1);
}

TEST(Faults, BalancersGetTimeToNoticeADrain) {
  RigOptions options;
  options.server.drain_delay = 3600;
  Rig rig(options);
  rig.server->drain();
  EXPECT_TRUE(eventually([&] { return rig.ask(get("/ready")).status == 503; }));
  EXPECT_EQ(rig.ask(get("/health")).status, 200);
  EXPECT_EQ(rig.ask(post(R"({"max_tokens":3})")).body, "{\"tokens\":3}") << "whoever comes is served";
  rig.server->end_now();
  EXPECT_EQ(rig.server->wait(), Server::End::Cut);
}

TEST(Faults, ASecondSignalDoesNotWaitForReadersOrLiveViews) {
  reads_begun = 0;
  reads_go_on = false;
  RigOptions options;
  options.server.prepare_threads = 1;
  options.server.drain_delay = 3600;
  options.operations = {{"POST", "/v1/chat/completions", api::Dialect::OpenAi, true, "", read_slowly}};
  Rig rig(options);
  Client live = rig.connect(), reading = rig.connect(), waiting = rig.connect();
  live.send(get("/api/live"));
  EXPECT_EQ(live.read_head().status, 200);
  reading.send(post("{}"));
  ASSERT_TRUE(eventually([&] { return reads_begun == 1; }));
  waiting.send(post("{}"));
  ASSERT_TRUE(eventually([&] { return rig.metrics().jobs == 2; }));
  rig.server->drain();
  rig.server->end_now();
  EXPECT_EQ(rig.server->wait(), Server::End::Cut);
  EXPECT_TRUE(eventually([&] { return rig.metrics().connections == 0; })) << "the one that is read, too";
  reads_go_on = true;
  reads_go_on.notify_all();
  rig.server.reset();
  EXPECT_EQ(reads_begun, 1) << "what waited is not read any more";
}

TEST(Faults, LogitsThatAreNoNumbersFailTheirRequestAlone) {
  Rig rig;
  rig.executor.faults.request_fails = [](SeqId seq) { return seq.value % 2 == 0; };
  int whole = 0, failed = 0;
  for (int i = 0; i < 8; ++i) {
    const Response response = rig.ask(post(R"({"max_tokens":4})"));
    whole += response.status == 200 && response.body == "{\"tokens\":4}";
    failed +=
        response.status == 500 && response.body.find("\"code\":\"numerical_error\"") != std::string::npos;
  }
  EXPECT_EQ(whole, 4);
  EXPECT_EQ(failed, 4);
  EXPECT_EQ(rig.engine().metrics().corrupted.value(), 4u);
}

TEST(Faults, TheProcessIsAliveWhateverTheEngineDoes) {
  RigOptions options;
  options.server.watchdog = 0.05;
  Rig rig(options);
  rig.executor.hold();
  Client client = rig.connect();
  client.send(stream_of(5));
  EXPECT_TRUE(eventually([&] { return rig.ask(get("/health")).status == 503; }));
  EXPECT_EQ(rig.ask(get("/health/live")).status, 200);
}

// With a timer that is due all the time, one of these ends between its being due and its being called.
TEST(Faults, AServerEndsThoughItsTimerIsDue) {
  setenv("NOTIFY_SOCKET", "@sluice-test-nobody-listens", 1);
  setenv("WATCHDOG_USEC", "4", 1);
  for (int i = 0; i < 20; ++i) {
    Rig rig;
    EXPECT_EQ(rig.ask(get("/health/live")).status, 200);
  }
  unsetenv("NOTIFY_SOCKET");
  unsetenv("WATCHDOG_USEC");
}

}  // namespace
}  // namespace sluice::server

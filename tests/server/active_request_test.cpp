// Requests at work: streams, clients that go, clients that do not read, overload, drain, health.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>

#include "base/log.h"
#include "tests/server/rig.h"

namespace sluice::server {
namespace {

TEST(ActiveRequest, StreamsEvents) {
  Rig rig;
  Client client = rig.connect();
  client.send(stream_of(6) + get("/health"));
  const Response response = client.read_response();
  EXPECT_EQ(response.fields.at("content-type"), "text/event-stream");
  EXPECT_EQ(response.fields.at("cache-control"), "no-cache");
  EXPECT_TRUE(response.complete);
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
  size_t events = 0;
  for (size_t at = 0; (at = response.body.find("data: ", at)) != std::string::npos; ++at) ++events;
  EXPECT_EQ(events, 7u);
  EXPECT_EQ(client.read_response().status, 200) << "the connection stays";
}

TEST(ActiveRequest, StreamsToOldClientsUpToTheEnd) {
  Rig rig;
  Client client = rig.connect();
  std::string request = stream_of(3);
  request.replace(request.find("HTTP/1.1"), 8, "HTTP/1.0");
  client.send(request);
  const Response response = client.read_response();
  EXPECT_FALSE(response.fields.contains("transfer-encoding"));
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
}

TEST(ActiveRequest, PingsWhileItWaits) {
  RigOptions options;
  options.server.ping_interval = 0.1;
  Rig rig(options);
  rig.executor.hold();
  Client client = rig.connect();
  client.send(stream_of(2));
  EXPECT_EQ(client.read_head().status, 200);
  EXPECT_EQ(client.read_chunk(), ": ping\n\n");
  rig.executor.release();
  EXPECT_NE(client.read_until("[DONE]").find("[DONE]"), std::string::npos);
}

// However a client goes, and whenever, its blocks are free soon after and others get what they asked for.
TEST(ActiveRequest, AClientThatGoesTakesItsRequestWithIt) {
  Rig rig;
  rig.executor.step_us = 5000;  // a second and more for all of an answer
  for (const bool stream : {true, false}) {
    for (const bool hard : {true, false}) {
      for (const int wait_ms : {0, 3, 20}) {
        Client client = rig.connect();
        client.send(post(fmt::format(R"({{"stream":{},"max_tokens":200}})", stream)));
        std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
        if (hard) {
          client.reset();
        } else {
          client.close();
        }
        EXPECT_TRUE(eventually([&] { return rig.engine_is_empty() && rig.metrics().requests == 0; }))
            << "stream " << stream << " hard " << hard << " after " << wait_ms;
      }
    }
  }
  EXPECT_GE(rig.engine().metrics().cancelled.value(), 6u);
  EXPECT_EQ(rig.ask(post(R"({"max_tokens":5})")).body, "{\"tokens\":5}");
}

TEST(ActiveRequest, AClientThatGoesWhileItWaitsInTheQueueIsForgotten) {
  Rig rig;
  rig.executor.hold();
  std::vector<Client> clients;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(rig.connect());
    clients.back().send(stream_of(100, i));
  }
  ASSERT_TRUE(eventually([&] { return rig.engine().metrics().received.value() == 12; }));
  for (size_t i = 0; i < clients.size(); ++i) i % 2 == 0 ? clients[i].reset() : clients[i].close();
  EXPECT_TRUE(eventually([&] { return rig.metrics().requests == 0; }));
  rig.executor.release();
  EXPECT_TRUE(eventually([&] { return rig.engine_is_empty(); }));
  EXPECT_EQ(rig.engine().metrics().cancelled.value(), 12u);
}

int open_files() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST(ActiveRequest, TheLogShowsWhatACancelledRequestUsed) {
  Rig rig;
  rig.executor.step_us = 50'000;  // 10 s for all of the answer
  set_log_level(LogLevel::Info);
  testing::internal::CaptureStderr();
  Client client = rig.connect();
  client.send(post(R"({"stream":true,"max_tokens":200,"prompt":9})", "X-Request-Id: gone\r\n"));
  EXPECT_EQ(client.read_head().status, 200);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(client.read_chunk().empty());
  client.reset();
  EXPECT_TRUE(eventually([&] { return rig.metrics().requests == 0 && rig.metrics().connections == 0; }));
  set_log_level(LogLevel::Off);
  const std::string log = testing::internal::GetCapturedStderr();
  ASSERT_THAT(log, testing::ContainsRegex("id=gone .*status=499 .*prompt=9 .*generated=[0-9]+"));
  EXPECT_GE(std::stoi(log.substr(log.find("generated=") + std::string_view("generated=").size())), 3);
}

TEST(ActiveRequest, AThousandClientsThatGoLeaveNothingBehind) {
  RigOptions options;
  options.engine.scheduler.max_seqs = 16;
  options.engine.kv_manager.groups[0].blocks = {1024};
  Rig rig(options);
  rig.executor.step_us = 200;
  const int files = open_files();
  std::minstd_rand random(1);
  std::deque<Client> clients;
  for (int i = 0; i < 1000; ++i) {
    clients.push_back(rig.connect());
    const std::string request = random() % 2 == 0 ? stream_of(100, i % 60) : post(R"({"max_tokens":100})");
    clients.back().send(request.substr(0, random() % 8 == 0 ? random() % request.size() : request.size()));
    while (clients.size() > 1 + random() % 24) {
      random() % 2 == 0 ? clients.front().reset() : clients.front().close();
      clients.pop_front();
    }
  }
  clients.clear();
  EXPECT_TRUE(eventually([&] { return rig.metrics().connections == 0 && rig.engine_is_empty(); }));
  EXPECT_EQ(rig.metrics().requests, 0);
  EXPECT_EQ(rig.metrics().body_bytes, 0);
  EXPECT_TRUE(eventually([&] { return open_files() <= files; }))
      << open_files() << " files, before " << files;
  EXPECT_EQ(rig.executor.complaint(), "");
  EXPECT_EQ(rig.ask(post(R"({"max_tokens":5})")).body, "{\"tokens\":5}");
}

TEST(ActiveRequest, AClientThatOnlyStopsSendingIsServed) {
  Rig rig;
  rig.executor.hold();
  for (const std::string& request : {stream_of(5), post(R"({"max_tokens":5})")}) {
    rig.executor.hold();
    Client client = rig.connect();
    client.send(request);
    ASSERT_TRUE(eventually([&] { return rig.engine().health().busy; }));
    client.half_close();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    rig.executor.release();
    const Response response = client.read_response();
    EXPECT_EQ(response.status, 200);
    EXPECT_TRUE(response.complete);
  }
}

TEST(ActiveRequest, AReaderThatStallsIsDroppedAndHoldsLittle) {
  RigOptions options;
  options.server.write_timeout = 0.3;
  options.engine.kv_manager.groups[0].blocks = {100'000};
  Rig rig(options);
  rig.executor.check_kv = false;
  Client stalled = rig.connect(2048);
  stalled.send(stream_of(200'000));
  EXPECT_EQ(rig.ask(post(R"({"max_tokens":5})")).status, 200);
  EXPECT_TRUE(eventually([&] { return rig.metrics().troubles(RejectReason::Stalled) == 1; }));
  EXPECT_TRUE(eventually([&] { return rig.engine_is_empty(); }));
  EXPECT_EQ(rig.engine().metrics().cancelled.value(), 1u);
}

TEST(ActiveRequest, TooMuchWaitingIs503) {
  RigOptions options;
  options.engine.queue.requests = 2;
  Rig rig(options);
  rig.executor.hold();
  std::vector<Client> clients;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(rig.connect());
    clients.back().send(stream_of(100, i));
  }
  ASSERT_TRUE(eventually([&] { return rig.metrics().troubles(RejectReason::Overload) >= 4; }));
  rig.executor.release();
  int served = 0, refused = 0;
  for (Client& client : clients) {
    const Response response = client.read_response();
    served += response.status == 200 && response.complete;
    refused += response.status == 503;
    if (response.status != 503) continue;
    EXPECT_NE(response.body.find("server_is_overloaded"), std::string::npos);
    EXPECT_TRUE(response.fields.contains("retry-after"));
  }
  EXPECT_EQ(served + refused, 12);
  EXPECT_GE(served, 2);
}

TEST(ActiveRequest, ManyStreamsAtOnceAreAllComplete) {
  RigOptions options;
  options.engine.scheduler.max_seqs = 16;
  options.engine.kv_manager.groups[0].blocks = {4096};
  Rig rig(options);
  std::vector<Client> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(rig.connect());
    clients.back().send(stream_of(20, i % 50));
  }
  std::map<int, std::string> first;
  for (int i = 0; i < 200; ++i) {
    const Response response = clients[static_cast<size_t>(i)].read_response();
    EXPECT_TRUE(response.complete);
    const auto [place, fresh] = first.try_emplace(i % 50, response.body);
    EXPECT_EQ(place->second, response.body) << "the same question, another answer";
  }
  EXPECT_TRUE(eventually([&] { return rig.engine_is_empty(); }));
}

TEST(Drain, FinishesWhatRunsAndRefusesTheRest) {
  Rig rig;
  rig.executor.hold();
  Client running = rig.connect(), idle = rig.connect(), other = rig.connect();
  idle.send(get("/ready"));
  EXPECT_EQ(idle.read_response().status, 200);
  running.send(stream_of(20));
  other.send("GET /rea");
  ASSERT_TRUE(eventually([&] { return rig.engine().health().busy && rig.metrics().connections == 3; }));
  rig.server->drain();
  EXPECT_TRUE(idle.at_end()) << "idle connections are closed";
  other.send("dy HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(other.read_response().status, 503);
  const Response ready = rig.ask(get("/ready"));
  EXPECT_EQ(ready.status, 503) << "probes are answered";
  EXPECT_EQ(ready.body, "{\"status\":\"draining\"}");
  EXPECT_EQ(ready.fields.at("connection"), "close");
  EXPECT_EQ(rig.ask(post("{}")).status, 503) << "nobody else is let in";
  Client silent = rig.connect();
  std::future<Server::End> end = std::async(std::launch::async, [&] { return rig.server->wait(); });
  rig.executor.release();
  const Response response = running.read_response();
  EXPECT_TRUE(response.body.ends_with("[DONE]\n\n"));
  EXPECT_EQ(end.get(), Server::End::Drained) << "nobody waits for who came last";
  EXPECT_TRUE(silent.at_end());
}

TEST(Drain, CutsWhatTakesTooLong) {
  RigOptions options;
  options.server.shutdown_timeout = 0.2;
  Rig rig(options);
  rig.executor.step_us = 250'000;
  Client client = rig.connect();
  client.send(stream_of(200));  // 50 s
  EXPECT_EQ(client.read_head().status, 200);
  rig.server->drain();
  const TimePoint start = Clock::now();
  EXPECT_EQ(rig.server->wait(), Server::End::Cut);
  EXPECT_LT(seconds_since(start), 20.0);
  EXPECT_NE(client.read_until("error server_is_overloaded").find("error"), std::string::npos);
  EXPECT_TRUE(eventually([&] { return rig.engine_is_empty(); }));
}

TEST(Drain, SignalsAreObeyed) {
  const std::string path = testing::TempDir() + "server_signal_keys";
  std::ofstream(path) << "old\n";
  RigOptions options;
  options.server.api_key_file = path;
  options.signals = true;
  Rig rig(options);
  const auto status = [&](const std::string& key) {
    return rig.ask(get("/version", "X-Api-Key: " + key + "\r\n")).status;
  };
  std::ofstream(path) << "new\n";
  kill(getpid(), SIGHUP);
  EXPECT_TRUE(eventually([&] { return status("new") == 200; }));
  EXPECT_EQ(status("old"), 401);
  rig.executor.hold();
  Client client = rig.connect();
  client.send(post(R"({"stream":true})", "X-Api-Key: new\r\n"));
  ASSERT_TRUE(eventually([&] { return rig.engine().health().busy; }));
  kill(getpid(), SIGTERM);
  ASSERT_TRUE(eventually([&] { return rig.server->state().refusing(); }));
  kill(getpid(), SIGTERM);
  EXPECT_EQ(rig.server->wait(), Server::End::Cut);
  EXPECT_TRUE(client.at_end());
  std::remove(path.c_str());
}

TEST(Drain, EndsAtOnceWhenTold) {
  Rig rig;
  rig.executor.hold();
  Client client = rig.connect();
  client.send(stream_of(200));
  ASSERT_TRUE(eventually([&] { return rig.engine().health().busy; }));
  rig.server->drain();
  rig.server->end_now();
  EXPECT_EQ(rig.server->wait(), Server::End::Cut);
  rig.executor.release();
  EXPECT_TRUE(eventually([&] { return rig.engine_is_empty(); }));
}

TEST(Health, FollowsProgress) {
  RigOptions options;
  options.server.watchdog = 0.2;
  Rig rig(options);
  EXPECT_EQ(rig.ask(get("/health")).status, 200);
  rig.executor.hold();
  Client client = rig.connect();
  client.send(stream_of(5));
  EXPECT_TRUE(eventually([&] { return rig.ask(get("/health")).status == 503; }));
  EXPECT_EQ(rig.ask(get("/ready")).status, 503);
  rig.executor.release();
  EXPECT_TRUE(eventually([&] { return rig.ask(get("/health")).status == 200; }));
  EXPECT_TRUE(client.read_response().complete);
}

TEST(Health, ALostEngineEndsTheServer) {
  Rig rig;
  rig.executor.broken = true;
  const Response response = rig.ask(post("{}"));
  EXPECT_GE(response.status, 500);
  EXPECT_EQ(rig.server->wait(), Server::End::EngineLost);
}

TEST(Health, SaysThatItLoads) {
  ServerOptions options;
  options.port = 0;
  Result<std::unique_ptr<Server>> server = Server::open(options, false, test_operations());
  ASSERT_TRUE(server.ok());
  const auto status = [&](const std::string& request) {
    Client client((*server)->port());
    client.send(request);
    return client.read_response().status;
  };
  EXPECT_EQ(status(get("/health")), 200);
  EXPECT_EQ(status(get("/ready")), 503);
  EXPECT_EQ(status(post("{}")), 503);
  EXPECT_EQ(status(get("/api/live")), 503);
  EXPECT_EQ(status(get("/metrics")), 200);
}

TEST(Live, TellsWhatHappens) {
  Rig rig;
  Client live = rig.connect();
  live.send(get("/api/live"));
  EXPECT_EQ(live.read_head().status, 200);
  EXPECT_TRUE(live.read_chunk().starts_with("event: hello\ndata: {\"version\""));
  EXPECT_TRUE(live.read_chunk().starts_with("event: state\n"));
  rig.ask(post(R"({"max_tokens":5})"));
  std::string seen;
  while (seen.find("\"reason\":\"length\"") == std::string::npos) {
    const std::string chunk = live.read_chunk();
    if (chunk.empty()) break;
    seen += chunk;
  }
  EXPECT_NE(seen.find("\"work\":[["), std::string::npos) << seen;
  live.close();
  EXPECT_TRUE(eventually([&] { return rig.metrics().live_views == 0; }));
}

TEST(Server, SaysWhenThePortIsTaken) {
  Rig rig;
  ServerOptions options;
  options.port = rig.port();
  const Result<std::unique_ptr<Server>> second = Server::open(options, false, test_operations());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::Unavailable);
  EXPECT_NE(second.error().message.find("taken"), std::string::npos);
}

}  // namespace
}  // namespace sluice::server

// The parts of the server that need no socket.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/un.h>

#include <cstdio>
#include <fstream>

#include "server/access/admission.h"
#include "server/access/client_limits.h"
#include "server/access/guards.h"
#include "server/access/keys.h"
#include "server/core/options.h"
#include "server/core/router.h"
#include "server/http/response.h"
#include "server/observe/metrics_text.h"
#include "server/observe/notify.h"
#include "tests/server/rig.h"

namespace sluice::server {
namespace {

TEST(Keys, AreFoundByTheirOwnersNames) {
  const Result<KeyRing> ring = KeyRing::make({{"secret", "alice:sk-a:b"}, ""});
  ASSERT_TRUE(ring.ok());
  EXPECT_EQ(ring->find("secret"), "key-1");
  EXPECT_EQ(ring->find("sk-a:b"), "alice");
  for (const char* wrong : {"", "secre", "secret ", "Secret", "alice:sk-a:b", "key-1"})
    EXPECT_FALSE(ring->find(wrong).has_value()) << wrong;
}

TEST(Keys, ComeFromAFile) {
  const std::string path = testing::TempDir() + "keys";
  std::ofstream(path) << "# people\n\nbob:one\r\n  two  \n";
  const Result<KeyRing> ring = KeyRing::make({{}, path});
  ASSERT_TRUE(ring.ok());
  EXPECT_EQ(ring->size(), 2u);
  EXPECT_EQ(ring->find("one"), "bob");
  EXPECT_EQ(ring->find("two"), "key-2");
  std::ofstream(path) << "a b\n";
  const Result<KeyRing> wrong = KeyRing::make({{}, path});
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().message.find("a b"), std::string::npos) << "an error shows a key";
  EXPECT_FALSE(KeyRing::make({{}, path + "-not-there"}).ok());
  EXPECT_FALSE(KeyRing::make({{""}, ""}).ok());
  std::remove(path.c_str());
}

TEST(Guards, KnowTheirOwnNames) {
  const GuardOptions own{true, {"box.example"}, {}, "box"};
  for (const char* host : {"localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "box.example:443"})
    EXPECT_TRUE(host_allowed(own, host, Keys::None)) << host;
  for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "10.0.0.1", "[::2]"})
    EXPECT_FALSE(host_allowed(own, host, Keys::None)) << host;
  const GuardOptions open{false, {}, {}, "box"}, named{false, {"mine.example"}, {}, "box"};
  EXPECT_TRUE(host_allowed(open, "any.example", Keys::Asked));
  EXPECT_FALSE(host_allowed(named, "any.example", Keys::Asked));
  for (const char* host : {"any.example", "box.example", "10.0.0.1.nip.io", "[any.example]"})
    EXPECT_FALSE(host_allowed(open, host, Keys::None))
        << host << ": a page of another site could have this name";
  for (const char* host : {"10.0.0.1:8080", "[2001:db8::1]:8080", "BOX:8080", "box.local", "localhost"})
    EXPECT_TRUE(host_allowed(open, host, Keys::None)) << host;
}

TEST(Guards, TellWhosePageItIs) {
  const GuardOptions options{true, {}, {"https://good.example"}, ""};
  const auto judged = [&](std::vector<HeaderField> fields) {
    RequestHead head;
    head.host = "localhost:8080";
    head.fields = std::move(fields);
    return judge_origin(options, head);
  };
  EXPECT_EQ(judged({}), Origin::None);
  EXPECT_EQ(judged({{"origin", "http://localhost:8080"}}), Origin::None);
  EXPECT_EQ(judged({{"origin", "https://good.example"}}), Origin::Listed);
  for (const char* own :
       {"http://localhost:9999", "https://localhost", "http://127.0.0.1:3000", "http://[::1]:3000"})
    EXPECT_EQ(judged({{"origin", own}}), Origin::Listed) << own << ": a page of this machine";
  for (const char* foreign :
       {"https://evil.example", "null", "file://", "", "http://localhost.evil.example",
        "http://localhost:80@evil.example", "ftp://localhost", "http://", "http://127.0.0.2"})
    EXPECT_EQ(judged({{"origin", foreign}}), Origin::Foreign) << foreign;
  EXPECT_EQ(judged({{"sec-fetch-site", "cross-site"}, {"sec-fetch-mode", "no-cors"}}), Origin::Foreign);
  EXPECT_EQ(judged({{"sec-fetch-site", "cross-site"}, {"sec-fetch-mode", "navigate"}}), Origin::None);
}

TEST(Limits, CountRequestsAMinuteAndAtOnce) {
  ClientLimits limits({.requests_per_minute = 2, .concurrency = 1});
  const TimePoint start = Clock::now();
  const auto admitted = [](const auto& turn) { return std::holds_alternative<ClientLimits::Lease>(turn); };
  {
    const auto first = limits.admit("a", start);
    EXPECT_TRUE(admitted(first));
    EXPECT_FALSE(admitted(limits.admit("a", start))) << "one at once";
    EXPECT_TRUE(admitted(limits.admit("b", start)));
  }
  EXPECT_TRUE(admitted(limits.admit("a", start)));
  const auto third = limits.admit("a", start);
  ASSERT_FALSE(admitted(third)) << "two a minute";
  EXPECT_EQ(std::get<ClientLimits::Refused>(third).retry_after_s, 30);
  EXPECT_TRUE(admitted(limits.admit("a", start + std::chrono::seconds(31))));
}

TEST(Limits, ForgetClients) {
  ClientLimits limits({.requests_per_minute = 100, .concurrency = 0});
  const TimePoint start = Clock::now();
  for (int i = 0; i < 20'000; ++i) limits.admit(std::to_string(i), start);
  EXPECT_LE(limits.known(), 4097u);
}

TEST(ClientLimits, CountSequencesAndTokens) {
  ClientLimits limits({.requests_per_minute = 60, .concurrency = 8, .tokens_per_minute = 600});
  const TimePoint now = Clock::now();
  {
    auto wide = std::get<ClientLimits::Lease>(limits.admit("ann", now));
    EXPECT_TRUE(wide.extend(9, 10, now)) << "more than may run at once";
    EXPECT_FALSE(wide.extend(7, 500, now));
    auto second = std::get<ClientLimits::Lease>(limits.admit("ann", now));
    EXPECT_TRUE(std::holds_alternative<ClientLimits::Refused>(limits.admit("ann", now)))
        << "eight are running";
    wide.charge(700);
  }
  const auto late = limits.admit("ann", now);
  ASSERT_TRUE(std::holds_alternative<ClientLimits::Refused>(late)) << "1200 of 600 tokens are used";
  EXPECT_EQ(std::get<ClientLimits::Refused>(late).retry_after_s, 61);
  EXPECT_TRUE(
      std::holds_alternative<ClientLimits::Lease>(limits.admit("ann", now + std::chrono::seconds(62))));
  EXPECT_TRUE(std::holds_alternative<ClientLimits::Lease>(limits.admit("bob", now)));
}

TEST(Deadline, IsDecimalSeconds) {
  EXPECT_EQ(parse_deadline("2"), 2.0);
  EXPECT_EQ(parse_deadline("0.25"), 0.25);
  for (const char* text : {"", ".", "1.", ".5", "-1", "+1", "1e3", "nan", "inf", "0x1", " 1", "1 ", "1,5",
                           "1.2.3", "1234567890"})
    EXPECT_EQ(parse_deadline(text), std::nullopt) << text;
}

TEST(KeyWeights, AreNamesWithNumbers) {
  const auto weights = parse_key_weights({"ann=3", "bob=0.5", "ann=4"});
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ(weights->at("ann"), 4);
  EXPECT_EQ(weights->at("bob"), 0.5);
  for (const char* text : {"ann", "=3", "ann=", "ann=x", "ann=0", "ann=-1", "ann=1001", "ann=1 ", "ann=nan"})
    EXPECT_FALSE(parse_key_weights({text}).ok()) << text;
}

TEST(Router, MatchesRoutesAndNamesMethods) {
  const std::vector<api::Operation> operations = test_operations();
  const std::vector<EmbeddedFile> files = {{"index.html", "page"}, {"a.js", "code"}};
  const std::vector<Asset> assets = make_assets(files);
  const Router router(operations, assets);
  EXPECT_EQ(router.match("GET", "/health").route->path, "/health");
  EXPECT_EQ(router.match("HEAD", "/").route->path, "/");
  EXPECT_EQ(router.match("GET", "/v1/models/org/name%20x").rest, "org/name x");
  EXPECT_EQ(router.match("GET", "/v1/models/").route, nullptr);
  EXPECT_EQ(router.match("GET", "/v1/chat/completions").allow, "POST");
  EXPECT_EQ(router.match("DELETE", "/health").allow, "GET, HEAD");
  for (const char* path :
       {"//health", "/health/", "/./health", "/x/../health", "/HEALTH", "/%68ealth", "/health;x", "*"})
    EXPECT_EQ(router.match("GET", path).route, nullptr) << path;
}

TEST(Options, RefuseAnOpenDoor) {
  ServerOptions options;
  EXPECT_TRUE(validate(options).ok());
  options.host = "0.0.0.0";
  EXPECT_FALSE(validate(options).ok());
  options.insecure_no_auth = true;
  EXPECT_TRUE(validate(options).ok());
  options.insecure_no_auth = false;
  options.api_keys = {"k"};
  EXPECT_TRUE(validate(options).ok());
  options.cors_origins = {"example.com"};
  EXPECT_FALSE(validate(options).ok());
}

TEST(Response, WritesHeadsAndChunks) {
  EXPECT_EQ(write_head({.status = 204, .content_type = "", .length = 0, .fields = {}}),
            "HTTP/1.1 204 No Content\r\nconnection: keep-alive\r\nx-content-type-options: nosniff\r\n\r\n");
  std::string out;
  append_chunk(out, "");
  EXPECT_EQ(out, "");
  append_chunk(out, std::string(26, 'x'));
  EXPECT_EQ(out, "1a\r\n" + std::string(26, 'x') + "\r\n");
}

TEST(RequestId, IsTheClientsWhereItIsHarmless) {
  RequestHead head;
  head.fields = {{"x-request-id", "abc-1.2_3"}};
  EXPECT_EQ(request_id_of(&head), "abc-1.2_3");
  for (const std::string& bad : {std::string("a b"), std::string("a\tb"), std::string(129, 'a')}) {
    head.fields[0].value = bad;
    EXPECT_TRUE(request_id_of(&head).starts_with("req_")) << bad;
  }
  EXPECT_NE(request_id_of(nullptr), request_id_of(nullptr));
}

TEST(Notify, SendsADatagram) {
  const std::string path = testing::TempDir() + "notify_socket";
  std::remove(path.c_str());
  const int listener = ::socket(AF_UNIX, SOCK_DGRAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path.c_str());
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ServiceNotifier silent;
  silent.send("READY=1");
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  setenv("WATCHDOG_USEC", "2500000", 1);
  const ServiceNotifier notifier;
  unsetenv("NOTIFY_SOCKET");
  unsetenv("WATCHDOG_USEC");
  notifier.send("STOPPING=1");
  char bytes[64] = {};
  EXPECT_EQ(::recv(listener, bytes, sizeof bytes - 1, 0), 10);
  EXPECT_STREQ(bytes, "STOPPING=1");
  EXPECT_EQ(notifier.watchdog_interval(), 2.5);
  ::close(listener);
  std::remove(path.c_str());
}

// The text format: every family has its lines together, histograms are cumulative and end with +Inf.
TEST(Metrics, AreWellFormedAndBounded) {
  RigOptions options;
  options.server.metrics_names = MetricsNames::Vllm;
  Rig rig(options);
  rig.ask(post(R"({"max_tokens":4})"));
  const auto page = [&] { return metrics_text(rig.server->state()); };
  // A request is counted when its last byte has gone, which its client may see first.
  const std::string counted =
      "sluice_http_requests_total{method=\"POST\",route=\"/v1/chat/completions\",status=\"2xx\"} 1";
  EXPECT_TRUE(eventually([&] { return page().find(counted) != std::string::npos; }));
  const std::string text = page();
  for (const char* line :
       {"sluice_generated_tokens_total{model=\"fake\"} 4", "# TYPE sluice_ttft_seconds histogram",
        "sluice_ttft_seconds_count{model=\"fake\"} 1", "vllm:generation_tokens_total{model_name=\"fake\"} 4",
        "vllm:time_to_first_token_seconds_bucket{model_name=\"fake\",le=\"+Inf\"} 1", "process_open_fds "})
    EXPECT_NE(text.find(line), std::string::npos) << line;
  const auto lines = [](const std::string& all) { return std::count(all.begin(), all.end(), '\n'); };
  const auto before = lines(text);
  for (int i = 0; i < 50; ++i)
    rig.ask(fmt::format("M{} /path{} HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {}\r\n\r\n", i, i, i));
  EXPECT_LE(lines(page()), before + 1) << "clients make the page longer";
  EXPECT_LT(duration_cuts().size(), 64u);
  EXPECT_LT(engine::Histogram::upper(duration_cuts()[0]), 1.2e-4) << "0.1 ms is not resolved";
}

}  // namespace
}  // namespace sluice::server

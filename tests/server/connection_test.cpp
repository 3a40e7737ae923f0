// Manners of connections: framing on the wire, limits, time-outs, keep-alive.
#include <fmt/format.h>

#include "tests/server/rig.h"

namespace sluice::server {
namespace {

TEST(Connection, AnswersAndStaysOpen) {
  Rig rig;
  Client client = rig.connect();
  for (int i = 0; i < 3; ++i) {
    client.send(post(R"({"max_tokens":5})"));
    const Response response = client.read_response();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "{\"tokens\":5}");
    EXPECT_EQ(response.fields.at("connection"), "keep-alive");
  }
  client.send(get("/health", "Connection: close\r\n"));
  EXPECT_EQ(client.read_response().fields.at("connection"), "close");
  EXPECT_TRUE(client.at_end());
  EXPECT_TRUE(eventually([&] { return rig.metrics().connections == 0; }));
}

TEST(Connection, AnswersPipelinedRequestsInOrder) {
  Rig rig;
  Client client = rig.connect();
  std::string all;
  for (int i = 1; i <= 5; ++i) all += post(fmt::format("{{\"max_tokens\":{}}}", i));
  client.send(all);
  for (int i = 1; i <= 5; ++i) EXPECT_EQ(client.read_response().body, fmt::format("{{\"tokens\":{}}}", i));
}

TEST(Connection, RefusesBadFramingAndCloses) {
  Rig rig;
  const std::string line =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  const std::vector<std::pair<std::string, int>> cases = {
      {line + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", 400},
      {line + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400},
      {line + "X: a\r\n b\r\nContent-Length: 2\r\n\r\n{}", 400},
      {"GET /health HTTP/1.1\nHost: localhost\n\n", 400},
      {line + "Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n", 400},
      {line + "Content-Length: 99999999999\r\n\r\n", 413},
      {"GET /" + std::string(9000, 'a') + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 414},
      {get("/health", "X: " + std::string(40000, 'a') + "\r\n"), 431},
      {"\x16\x03\x01\x02", 400},
      {"GET / HTTP/1.1\r\nHost: a/?x=\r\n\r\n", 400},
  };
  for (const auto& [bytes, status] : cases) {
    Client client = rig.connect();
    client.send(bytes);
    if (bytes[0] == '\x16') client.send("\r\n\r\n");
    const Response response = client.read_response();
    EXPECT_EQ(response.status, status) << bytes.substr(0, 120);
    EXPECT_EQ(response.fields.at("connection"), "close");
    EXPECT_NE(response.body.find("\"error\""), std::string::npos);
    EXPECT_TRUE(client.at_end());
  }
  EXPECT_EQ(rig.ask(get("/health")).status, 200);
}

TEST(Connection, ReadsChunkedBodiesAndContinues) {
  Rig rig;
  Client client = rig.connect();
  const std::string head =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nTransfer-Encoding: chunked\r\n";
  client.send(head + "\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 200);
  client.send(head + "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_head().status, 100);
  client.send("2\r\n{}\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 200);
}

TEST(Connection, AnswersHeadWithoutABody) {
  Rig rig;
  Client client = rig.connect();
  client.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n" + get("/health"));
  const Response head = client.read_response(false);
  EXPECT_EQ(head.status, 200);
  EXPECT_NE(head.fields.at("content-length"), "0");
  EXPECT_EQ(client.read_response().body, "{\"status\":\"ok\"}");
}

TEST(Connection, AnswersHeadWithoutABodyWhateverIsWrong) {
  RigOptions options;
  options.server.header_timeout = 1;
  Rig rig(options);
  const std::vector<std::pair<std::string, int>> cases = {
      {"HEAD /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n", 404},
      {"HEAD /health HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 5\r\n\r\n", 403},
      {"HEAD /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", 400},
      {"HEAD /health HTTP/1.1\r\nHost: localhost\r\nno field\r\n\r\n", 400},
      {"HEAD /" + std::string(9000, 'a') + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 414},
      {"HEAD /health HTTP/1.1\r\nHost: localhost\r\n", 408},
      {"HEAD /hea", 408},
  };
  for (const auto& [bytes, status] : cases) {
    Client client = rig.connect();
    client.send(bytes);
    EXPECT_EQ(client.read_response(false).status, status) << bytes.substr(0, 80);
    client.half_close();
    EXPECT_TRUE(client.at_end()) << "a body behind the answer to " << bytes.substr(0, 80);
  }
}

TEST(Connection, ServesThePageWithItsPolicy) {
  Rig rig;
  const Response page = rig.ask(get("/"));
  EXPECT_EQ(page.fields.at("content-type"), "text/html; charset=utf-8");
  EXPECT_TRUE(page.fields.at("content-security-policy").starts_with("default-src 'self'"));
  EXPECT_EQ(page.fields.at("x-content-type-options"), "nosniff");
  EXPECT_EQ(page.fields.at("referrer-policy"), "no-referrer");
  EXPECT_EQ(rig.ask(get("/", "If-None-Match: " + page.fields.at("etag") + "\r\n")).status, 304);
}

TEST(Connection, GoesOnAfterErrorsOfRequests) {
  Rig rig;
  Client client = rig.connect();
  const std::vector<std::pair<std::string, int>> cases = {{post("{"), 400},
                                                          {post(R"({"fail":1})"), 400},
                                                          {post(R"({"throw":1})"), 500},
                                                          {post(R"({"no_memory":1})"), 503},
                                                          {post(R"({"prompt":100000})"), 400},
                                                          {get("/nowhere"), 404},
                                                          {get("/v1/chat/completions"), 405}};
  for (const auto& [bytes, status] : cases) {
    client.send(bytes);
    const Response response = client.read_response();
    EXPECT_EQ(response.status, status) << bytes;
    EXPECT_TRUE(response.fields.contains("x-request-id"));
    EXPECT_EQ(response.body.find("thrown by"), std::string::npos) << "an error tells about the inside";
  }
  client.send(post("{}", "X-Request-Id: mine\r\n"));
  EXPECT_EQ(client.read_response().fields.at("x-request-id"), "mine");
}

TEST(Connection, DropsSlowHeadersAndSlowBodiesAndIdlers) {
  RigOptions options;
  options.server.header_timeout = 1;
  options.server.idle_timeout = 1;
  options.server.body_grace = 1;
  Rig rig(options);
  Client idle = rig.connect();
  EXPECT_TRUE(idle.at_end());
  Client header = rig.connect();
  header.send("GET /hea");
  EXPECT_EQ(header.read_response().status, 408);
  EXPECT_TRUE(header.at_end());
  Client body = rig.connect();
  body.send(post(std::string(100, ' ')).substr(0, 150));
  EXPECT_EQ(body.read_response().status, 408);
  EXPECT_TRUE(body.at_end());
  EXPECT_EQ(rig.metrics().troubles(RejectReason::Slow), 2u);
}

TEST(Connection, SendsAwayWhatIsTooMuch) {
  RigOptions options;
  options.server.max_connections = 8;
  options.server.body_budget = 4096;
  Rig rig(options);
  Client large = rig.connect();
  large.send(post(std::string(100'000, ' ')));
  EXPECT_EQ(large.read_response().status, 503) << "bodies over the budget";
  large.close();
  rig.executor.hold();
  std::vector<Client> busy;
  for (const char* from : {"127.0.0.2", "127.0.0.3"}) {
    for (int i = 0; i < 4; ++i) {
      busy.push_back(rig.connect_from(from));
      busy.back().send(stream_of(5));
    }
    const int64_t wanted = std::ssize(busy);
    ASSERT_TRUE(
        eventually([&] { return rig.metrics().requests == wanted && rig.metrics().connections == wanted; }));
    EXPECT_EQ(rig.connect_from(from).read_response().status, 503)
        << "connections over the part of an address";
  }
  EXPECT_EQ(rig.connect().read_response().status, 503) << "connections over the limit";
  rig.executor.release();
  for (Client& client : busy) EXPECT_EQ(client.read_response().status, 200);
  busy.clear();
  EXPECT_TRUE(
      eventually([&] { return rig.metrics().body_bytes == 0 && rig.ask(get("/health")).status == 200; }));
}

}  // namespace
}  // namespace sluice::server

// The router over real sockets, in front of replicas that follow a script.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/log.h"
#include "route/router_server.h"
#include "server/handover/prefill_peers.h"
#include "tests/server/client.h"

namespace sluice::route {
namespace {

using server::Client;
using server::Response;

// Answers each request by what the script makes of its head and body; "" closes the connection.
class Replica {
 public:
  using Script = std::function<std::string(const std::string& request)>;
  explicit Replica(Script script) : script_(std::move(script)), socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof own;
    if (::bind(socket_, reinterpret_cast<sockaddr*>(&own), size) != 0 || ::listen(socket_, 64) != 0) return;
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&own), &size);
    port = ntohs(own.sin_port);
    thread_ = std::thread([this] { accept(); });
  }
  ~Replica() { stop(); }
  void stop() {
    if (stopped_.exchange(true)) return;
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
    for (std::thread& thread : serving_) thread.join();
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", port); }

  int port = 0;
  std::atomic<int> asked{0};  // beside reports

 private:
  void accept() {
    while (!stopped_) {
      const int connection = ::accept(socket_, nullptr, nullptr);
      if (connection < 0) return;
      serving_.emplace_back([this, connection] { serve(connection); });
    }
  }
  void serve(int connection) {
    std::string input;
    char bytes[4096];
    while (!stopped_) {
      size_t end = 0, length = 0;
      while ((end = input.find("\r\n\r\n")) == std::string::npos || input.size() < end + 4 + length) {
        if (end != std::string::npos) {
          const size_t field = input.find("content-length: ");
          length = field < end ? std::stoul(input.substr(field + 16)) : 0;
          if (input.size() >= end + 4 + length) break;
        }
        timeval patience{0, 200'000};
        ::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        const ssize_t got = ::recv(connection, bytes, sizeof bytes, 0);
        if (got < 0 && !stopped_) continue;
        if (got <= 0) {
          ::close(connection);
          return;
        }
        input.append(bytes, static_cast<size_t>(got));
      }
      const std::string request = std::exchange(input, "");
      const bool report = request.starts_with("GET /kv/prefixes");
      asked += report ? 0 : 1;
      const std::string answer = script_(request);
      if (!answer.empty()) ::send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
      if (answer.empty() || !answer.ends_with(kEnd)) break;
    }
    ::close(connection);
  }

 public:
  static constexpr const char* kEnd = "\n";

 private:
  Script script_;
  int socket_;
  std::atomic<bool> stopped_{false};
  std::thread thread_;
  std::vector<std::thread> serving_;
};

std::string whole(const std::string& body, int status = 200) {
  return fmt::format("HTTP/1.1 {} X\r\ncontent-length: {}\r\n\r\n{}\n", status, body.size() + 1, body);
}

std::string report(const char* stage = "serving") {
  return whole(fmt::format(R"({{"stage":"{}","salt":"","models":[]}})", stage));
}

Replica::Script answers(const std::string& name) {
  return [name](const std::string& request) {
    return request.starts_with("GET /kv/prefixes") ? report() : whole(name);
  };
}

class RouterTest : public testing::Test {
 protected:
  void open(std::vector<const Replica*> replicas, int max_running = 256) {
    set_log_level(LogLevel::Off);
    RouteOptions options;
    options.port = 0;
    options.poll_interval = 0.02;
    options.max_running = max_running;
    for (const Replica* replica : replicas) options.replicas.push_back(replica->url());
    router_ = *RouterServer::open(options, PromptReader({}), false);
    thread_ = std::thread([this] { router_->run(); });
    for (const Replica* replica : replicas) wait_until_healthy(*replica, true);
    EXPECT_EQ(ask("GET /ready").status, 200);
  }
  void wait_until_healthy(const Replica& replica, bool healthy) const {
    const std::string name = fmt::format("sluice_route_replica_healthy{{replica=\"{}\"}}", replica.url());
    for (int i = 0; i < 3000 && metric(name) != (healthy ? 1 : 0); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  void TearDown() override {
    if (!router_) return;
    router_->drain();
    thread_.join();
  }
  static std::string request(const std::string& line, const std::string& body = "") {
    return fmt::format("{} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}", line, body.size(),
                       body);
  }
  Response ask(const std::string& line) const {
    Client client(router_->port());
    client.send(request(line));
    return client.read_response();
  }
  double metric(const std::string& name) const {
    const std::string text = ask("GET /metrics").body;
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }

  std::unique_ptr<RouterServer> router_;
  std::thread thread_;
};

TEST_F(RouterTest, PassesOnWhatItDoesNotKnowAndSpreadsIt) {
  Replica a(answers("a")), b(answers("b"));
  open({&a, &b});
  Client client(router_->port());
  for (int i = 0; i < 10; ++i) {
    client.send(request("POST /v1/anything?x=1", "{}"));
    const Response answer = client.read_response();
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.body == "a\n" || answer.body == "b\n") << answer.body;
  }
  EXPECT_GE(a.asked, 3);
  EXPECT_GE(b.asked, 3);
  EXPECT_EQ(metric("sluice_route_requests_total"), 10);
  EXPECT_EQ(ask("GET /health/live").status, 200);
}

TEST_F(RouterTest, StreamsPassUnchanged) {
  const std::string stream =
      "HTTP/1.1 200 OK\r\nx-own: 7\r\ntransfer-encoding: chunked\r\n\r\n6\r\ndata: "
      "\r\n3;ext=1\r\nab\n\r\n0\r\n\r\n";
  std::string seen;
  Replica a([&](const std::string& text) {
    if (text.starts_with("GET /kv/prefixes")) return report();
    seen = text;
    return stream;
  });
  open({&a});
  Client client(router_->port());
  client.send(
      "POST /v1/x HTTP/1.1\r\nHost: localhost\r\nX-Mine: 1\r\nOrigin: http://localhost:1\r\nContent-Length: "
      "2\r\n\r\nhi");
  EXPECT_EQ(client.read_until("0\r\n\r\n"), stream);
  EXPECT_NE(seen.find("x-mine: 1\r\n"), std::string::npos);
  EXPECT_NE(seen.find("x-forwarded-for: 127.0.0.1\r\n"), std::string::npos);
  EXPECT_EQ(seen.find("origin"), std::string::npos);
  EXPECT_TRUE(seen.ends_with("\r\n\r\nhi")) << seen;
}

TEST_F(RouterTest, TriesAnotherBeforeTheFirstByte) {
  Replica dead(
      [](const std::string& text) { return text.starts_with("GET /kv") ? report() : std::string(); });
  Replica full(
      [](const std::string& text) { return text.starts_with("GET /kv") ? report() : whole("full", 503); });
  Replica good(answers("good"));
  open({&dead, &full, &good});
  for (int i = 0; i < 9; ++i) EXPECT_EQ(ask("POST /v1/x").body, "good\n");
  EXPECT_GT(metric("sluice_route_retries_total"), 0);
  good.stop();
  const Response refused = ask("POST /v1/x");
  EXPECT_EQ(refused.status, 503) << "the last word of a replica, or the router's own";
}

// An answer that its replica did not end is not ended by the router either.
TEST_F(RouterTest, BrokenStreamsAreNotEnded) {
  Replica a([](const std::string& text) {
    return text.starts_with("GET /kv") ? report()
                                       : "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello";
  });
  open({&a});
  Client client(router_->port());
  client.send(request("POST /v1/x"));
  const Response answer = client.read_response();
  EXPECT_FALSE(answer.complete);
  EXPECT_EQ(metric("sluice_route_broken_total"), 1);
  EXPECT_EQ(metric("sluice_route_retries_total"), 0);
}

TEST_F(RouterTest, LeavesOutThoseThatDrainOrAreGone) {
  std::atomic<bool> draining{false};
  Replica a([&](const std::string& text) {
    return text.starts_with("GET /kv") ? report(draining ? "draining" : "serving") : whole("a");
  });
  Replica b(answers("b"));
  open({&a, &b});
  draining = true;
  wait_until_healthy(a, false);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(ask("POST /v1/x").body, "b\n");
  b.stop();
  EXPECT_EQ(ask("POST /v1/x").status, 503) << "nobody is left";
  EXPECT_EQ(ask("GET /nothing").status, 503);
}

TEST_F(RouterTest, ForeignPagesAndNamesAreRefused) {
  Replica a(answers("a"));
  open({&a});
  Client evil(router_->port()), page(router_->port());
  evil.send("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_EQ(evil.read_response().status, 403);
  page.send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n");
  EXPECT_EQ(page.read_response().status, 403);
  EXPECT_EQ(a.asked, 0);
}

TEST(RouteOptionsTest, ReplicasAreAddresses) {
  EXPECT_EQ(server::parse_peer("--replica", "http://10.0.0.1:8080")->port, "8080");
  EXPECT_EQ(server::parse_peer("--replica", "http://[::1]:8080/")->host, "::1");
  EXPECT_EQ(server::parse_peer("--replica", "box")->port, "80");
  for (const char* wrong : {"", "https://a", "http://a/b", "http://", "a b"})
    EXPECT_FALSE(server::parse_peer("--replica", wrong).ok()) << wrong;
}

}  // namespace
}  // namespace sluice::route

// Who gets in: keys, names, origins, limits, over real sockets.
#include <fmt/format.h>

#include <sys/stat.h>

#include <fstream>

#include "base/log.h"
#include "tests/server/rig.h"

namespace sluice::server {
namespace {

RigOptions with_key() {
  RigOptions options;
  options.server.api_keys = {"alice:secret"};
  return options;
}

TEST(Access, EveryRouteIsClosedWithoutAKeyUnlessItIsListedHere) {
  Rig rig(with_key());
  for (const Route& route : rig.server->state().router().routes()) {
    const bool page = std::holds_alternative<const Asset*>(route.target);
    const bool open = page || route.path.starts_with("/health") || route.path.starts_with("/v2/health") ||
                      route.path == "/v1/health" || route.path == "/ready";
    std::string path = route.path;
    if (const size_t brace = path.find('{'); brace != std::string::npos)
      path.replace(brace, path.find('}') + 1 - brace, "fake");
    const std::string request = route.method == "GET" ? get(path) : post("{}", "", path);
    EXPECT_EQ(rig.ask(request).status, open ? 200 : 401) << route.path;
    if (std::holds_alternative<OwnRoute>(route.target) && std::get<OwnRoute>(route.target) == OwnRoute::Live)
      continue;
    for (const char* field :
         {"Authorization: Bearer secret\r\n", "X-Api-Key: secret\r\n", "api-key: secret\r\n"}) {
      const std::string with = route.method == "GET" ? get(path, field) : post("{}", field, path);
      const bool absent = route.path == "/kv/prefill";  // without --role prefill
      EXPECT_EQ(rig.ask(with).status, absent              ? 404
                                      : route.needs_admin ? 403
                                                          : 200)
          << route.path << " " << field;
    }
  }
  EXPECT_EQ(rig.ask(get("/nowhere")).status, 401) << "what is unknown is closed, too";
  EXPECT_EQ(rig.ask(get("/nowhere", "Authorization: Bearer secret\r\n")).status, 404);
}

TEST(Access, WrongKeysAreToldNothing) {
  Rig rig(with_key());
  for (const char* field :
       {"Authorization: Bearer Secret\r\n", "Authorization: secret\r\n", "Authorization: Basic secret\r\n",
        "Authorization: Bearer \r\n", "X-Api-Key: secre\r\n"}) {
    const Response response = rig.ask(get("/version", field));
    EXPECT_EQ(response.status, 401) << field;
    EXPECT_EQ(response.fields.at("www-authenticate"), "Bearer");
    EXPECT_EQ(response.body.find("secret"), std::string::npos);
  }
  EXPECT_EQ(rig.ask(post("{}", "", "/v1/messages")).body.find("\"type\":\"error\""), 1u)
      << "Anthropic's words";
}

TEST(Access, GuessingKeysIsSlow) {
  Rig rig(with_key());
  set_log_level(LogLevel::Info);
  testing::internal::CaptureStderr();
  const auto status = [&](const char* from, const std::string& field) {
    return rig.ask_from(from, get("/version", field)).status;
  };
  int told_to_wait = 0;
  for (int i = 0; i < 120; ++i) told_to_wait += status("127.0.0.66", "X-Api-Key: guess\r\n") == 429;
  EXPECT_GE(told_to_wait, 15);
  int let_in = 0;  // a guess a second has its turn
  for (int i = 0; i < 10; ++i) let_in += status("127.0.0.66", "X-Api-Key: secret\r\n") == 200;
  EXPECT_LT(let_in, 10) << "who guesses learns nothing from a right key";
  EXPECT_EQ(status("127.0.0.7", "X-Api-Key: secret\r\n"), 200) << "others are not held up";
  EXPECT_EQ(status("127.0.0.66", ""), 401) << "no key is no guess";
  set_log_level(LogLevel::Off);
  const std::string log = testing::internal::GetCapturedStderr();
  const size_t line = log.find("too many wrong keys from 127.0.0.66:");
  EXPECT_NE(line, std::string::npos) << log;
  EXPECT_EQ(log.find("too many wrong keys", line + 1), std::string::npos) << "a line a minute";
  EXPECT_EQ(log.find("guess"), std::string::npos) << "a key in the log";
}

TEST(Access, RequestsWithoutAKeyAreNoGuesses) {
  Rig rig(with_key());
  for (int i = 0; i < 80; ++i) EXPECT_EQ(rig.ask(get("/version")).status, 401);
  EXPECT_EQ(rig.ask(get("/version", "X-Api-Key: secret\r\n")).status, 200);
}

TEST(Access, AKeyIsShownOnce) {
  Rig rig(with_key());
  for (const char* fields : {"Authorization: Bearer secret\r\nAuthorization: Bearer secret\r\n",
                             "Authorization: Bearer secret\r\nauthorization: Bearer other\r\n",
                             "X-Api-Key: secret\r\nX-Api-Key: secret\r\n"}) {
    const Response response = rig.ask(get("/version", fields));
    EXPECT_EQ(response.status, 400) << fields;
    EXPECT_NE(response.body.find("more than once"), std::string::npos) << response.body;
  }
}

TEST(Access, KeysAreReadAgain) {
  const std::string path = testing::TempDir() + "server_keys";
  std::ofstream(path) << "old\n";
  RigOptions options;
  options.server.api_key_file = path;
  Rig rig(options);
  EXPECT_EQ(rig.ask(get("/version", "X-Api-Key: old\r\n")).status, 200);
  std::ofstream(path) << "new\n";
  rig.server->reload_keys();
  EXPECT_EQ(rig.ask(get("/version", "X-Api-Key: old\r\n")).status, 401);
  EXPECT_EQ(rig.ask(get("/version", "X-Api-Key: new\r\n")).status, 200);
  std::ofstream(path) << "not a key\n";
  rig.server->reload_keys();
  EXPECT_EQ(rig.ask(get("/version", "X-Api-Key: new\r\n")).status, 200) << "a bad file changes nothing";
  for (const char* empty : {"", "# no key\n"}) {
    std::ofstream(path) << empty;
    rig.server->reload_keys();
    EXPECT_EQ(rig.ask(get("/version")).status, 401) << "an emptied file opens nothing";
    EXPECT_EQ(rig.ask(get("/version", "X-Api-Key: new\r\n")).status, 200);
  }
  std::remove(path.c_str());
}

TEST(Access, OtherNamesAndOtherSitesAreRefused) {
  RigOptions options;
  options.server.cors_origins = {"https://good.example"};
  Rig rig(options);
  EXPECT_EQ(rig.ask("GET /version HTTP/1.1\r\nHost: evil.example\r\n\r\n").status, 403);
  EXPECT_EQ(rig.ask("GET / HTTP/1.1\r\nHost: rebound.example:8080\r\n\r\n").status, 403);
  EXPECT_EQ(rig.ask(get("/version", "Origin: https://evil.example\r\n")).status, 403);
  EXPECT_EQ(rig.ask(get("/version", "Origin: null\r\n")).status, 403);
  EXPECT_EQ(rig.ask(get("/version", "Origin: http://localhost\r\n")).status, 200);
  const Response good = rig.ask(get("/version", "Origin: https://good.example\r\n"));
  EXPECT_EQ(good.status, 200);
  EXPECT_EQ(good.fields.at("access-control-allow-origin"), "https://good.example");
  const std::string ask =
      "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAccess-Control-Request-Method: POST\r\n";
  const Response preflight = rig.ask(ask + "Origin: https://good.example\r\n\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.fields.at("access-control-allow-methods"), "GET, POST");
  EXPECT_EQ(rig.ask(ask + "Origin: https://evil.example\r\n\r\n").status, 403);
}

TEST(Access, AnEmptyKeyFileOpensNothingAtTheStart) {
  const std::string path = testing::TempDir() + "server_no_keys";
  std::ofstream(path) << "# none yet\n";
  RigOptions options;
  options.server.api_key_file = path;
  EXPECT_THROW(Rig{options}, std::runtime_error);
  options.server.insecure_no_auth = true;
  EXPECT_EQ(Rig(options).ask(get("/version")).status, 200) << "where it is said that this is meant";
  std::remove(path.c_str());
}

TEST(Access, KeyFilesThatAreNoFilesAreRefusedWithoutWaiting) {
  const std::string path = testing::TempDir() + "server_key_pipe";
  std::remove(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const Result<KeyRing> keys = KeyRing::make({{}, path});
  ASSERT_FALSE(keys);
  EXPECT_EQ(keys.error().message, "key file '" + path + "' is not a regular file");
  std::remove(path.c_str());
}

TEST(Access, AServerWithoutKeysAnswersToItsOwnNamesAlone) {
  RigOptions options;
  options.server.host = "0.0.0.0";
  options.server.insecure_no_auth = true;
  Rig rig(options);
  const auto status = [&](const std::string& host, const std::string& fields = "") {
    return rig.ask("GET /version HTTP/1.1\r\nHost: " + host + "\r\n" + fields + "\r\n").status;
  };
  EXPECT_EQ(status("rebound.example"), 403);
  EXPECT_EQ(status("192.0.2.1:8080"), 200);
  options.server.api_keys = {"secret"};
  Rig keyed(options);
  EXPECT_EQ(keyed.ask("GET /version HTTP/1.1\r\nHost: any.example\r\nX-Api-Key: secret\r\n\r\n").status, 200);
}

TEST(Access, PagesOfThisMachineMayCall) {
  Rig rig;
  for (const char* origin : {"http://localhost:3000", "http://127.0.0.1:5173", "http://[::1]:8000"}) {
    const std::string field = fmt::format("Origin: {}\r\n", origin);
    const Response asked =
        rig.ask("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost:8080\r\n" + field +
                "Access-Control-Request-Method: POST\r\n"
                "Access-Control-Request-Headers: content-type\r\n\r\n");
    EXPECT_EQ(asked.status, 204);
    EXPECT_EQ(asked.fields.at("access-control-allow-origin"), origin);
    EXPECT_EQ(asked.fields.at("access-control-allow-headers"), "content-type");
    const Response answer = rig.ask(post(R"({"max_tokens":1})", field));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.fields.at("access-control-allow-origin"), origin);
    EXPECT_EQ(answer.fields.at("vary"), "origin");
  }
}

TEST(Access, PreflightNeedsTheOption) {
  Rig rig;
  const Response response = rig.ask("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(response.fields.at("allow"), "POST");
}

TEST(Access, BodiesMustSayThatTheyAreJson) {
  Rig rig;
  const auto status = [&](const std::string& type) {
    return rig
        .ask("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n" + type +
             "Content-Length: 2\r\n\r\n{}")
        .status;
  };
  EXPECT_EQ(status(""), 415);
  EXPECT_EQ(status("Content-Type: text/plain\r\n"), 415);
  EXPECT_EQ(status("Content-Type: application/x-www-form-urlencoded\r\n"), 415);
  EXPECT_EQ(status("Content-Type: application/json; charset=latin1\r\n"), 415);
  EXPECT_EQ(status("Content-Type: application/json\r\nContent-Encoding: gzip\r\n"), 415);
  EXPECT_EQ(status("Content-Type: application/json; charset=utf-8\r\n"), 200);
}

TEST(Access, AKeyHasItsShare) {
  RigOptions options = with_key();
  options.server.key_concurrency = 1;
  Rig rig(options);
  rig.executor.hold();
  Client first = rig.connect();
  first.send(post(R"({"max_tokens":2})", "X-Api-Key: secret\r\n"));
  ASSERT_TRUE(eventually([&] { return rig.engine().health().busy; }));
  const Response second = rig.ask(post("{}", "X-Api-Key: secret\r\n"));
  EXPECT_EQ(second.status, 429);
  EXPECT_NE(second.body.find("rate_limit_exceeded"), std::string::npos);
  EXPECT_TRUE(second.fields.contains("retry-after"));
  rig.executor.release();
  EXPECT_EQ(first.read_response().status, 200);
  EXPECT_EQ(rig.ask(post("{}", "X-Api-Key: secret\r\n")).status, 200);
}

TEST(Access, WeightsAreOfKeysThatThereAre) {
  ServerOptions options;
  options.port = 0;
  options.key_weights = {"ann=2"};
  const auto refusal = [&] {
    const auto server = Server::open(options, false, test_operations());
    return server.ok() ? "" : server.error().message;
  };
  EXPECT_EQ(refusal(), "--key-weight ann=2: there are no keys");
  options.api_keys = {"bob:secret-1", "secret-2"};
  EXPECT_EQ(refusal(), "--key-weight ann=2: no key has this name; there are bob, key-2");
  options.key_weights = {"bob=2", "key-2=3"};
  EXPECT_EQ(refusal(), "");
}

}  // namespace
}  // namespace sluice::server

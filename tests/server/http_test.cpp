// Framing: what is one request, and what is refused.
#include "server/http/http.h"

#include <gtest/gtest.h>

namespace sluice::server {
namespace {

using Phase = RequestParser::Phase;

// Feeds a whole stream, in pieces of this size.
RequestParser parsed(std::string_view bytes, size_t piece = 1 << 20, HttpLimits limits = {}) {
  RequestParser parser(limits);
  size_t at = 0;
  while (at < bytes.size() && (parser.phase() == Phase::Head || parser.phase() == Phase::Body)) {
    const std::string_view part = bytes.substr(at, piece);
    const size_t used = parser.feed(part);
    at += used;
    if (used == 0) break;
  }
  return parser;
}

int status_of(std::string_view bytes) {
  const RequestParser whole = parsed(bytes), single = parsed(bytes, 1);
  EXPECT_EQ(whole.phase(), single.phase()) << bytes;
  if (whole.phase() != Phase::Failed) return whole.phase() == Phase::Done ? 200 : 0;
  EXPECT_EQ(whole.fault().status, single.fault().status) << bytes;
  return whole.fault().status;
}

TEST(Http, ReadsARequest) {
  RequestParser parser = parsed(
      "POST /v1/chat?x=1 HTTP/1.1\r\nHost: a.example:80\r\nX-Thing:  two words \t\r\nContent-Length: "
      "3\r\n\r\nabc");
  ASSERT_EQ(parser.phase(), Phase::Done);
  EXPECT_EQ(parser.head().method, "POST");
  EXPECT_EQ(parser.head().path(), "/v1/chat");
  EXPECT_EQ(parser.head().query(), "x=1");
  EXPECT_EQ(*parser.head().find("x-thing"), "two words");
  EXPECT_EQ(parser.body(), "abc");
  EXPECT_TRUE(parser.head().keep_alive);
}

TEST(Http, StopsBehindTheHeadAndBehindTheBody) {
  const std::string_view bytes =
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n";
  RequestParser parser({});
  const size_t head = parser.feed(bytes);
  EXPECT_EQ(bytes.substr(head, 3), "abc");
  EXPECT_EQ(parser.phase(), Phase::Body);
  EXPECT_EQ(parser.feed(bytes.substr(head)), 3u);
  EXPECT_EQ(parser.phase(), Phase::Done);
  parser.reset();
  parser.feed(bytes.substr(head + 3));
  EXPECT_TRUE(parser.started());
}

TEST(Http, ReadsChunks) {
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  RequestParser parser =
      parsed(head + "3\r\nabc\r\n0A;name=value\r\n0123456789\r\n0\r\nX-Trailer: 1\r\n\r\n");
  ASSERT_EQ(parser.phase(), Phase::Done);
  EXPECT_EQ(parser.body(), "abc0123456789");
  std::string many = head;
  for (int i = 0; i < 100'000; ++i) many += "1\r\nx\r\n";
  RequestParser counted = parsed(many + "0\r\n\r\n", 1000);
  ASSERT_EQ(counted.phase(), Phase::Done);
  EXPECT_EQ(counted.body().size(), 100'000u);
}

TEST(Http, RefusesAmbiguousFraming) {
  const std::string line = "POST / HTTP/1.1\r\nHost: a\r\n";
  for (const char* fields : {
           "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
           "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
           "Content-Length: 3\r\nContent-Length: 3\r\n",
           "Content-Length: 3\r\nContent-Length: 4\r\n",
           "Content-Length: 3, 3\r\n",
           "Content-Length: +3\r\n",
           "Content-Length: -3\r\n",
           "Content-Length: 0x3\r\n",
           "Content-Length: 3 \t3\r\n",
           "Content-Length:\r\n",
           "Content-Length: 9999999999999999999999\r\n",
           "Content-Length : 3\r\n",
           " Content-Length: 3\r\n",
           "X: a\r\n b\r\n",
           "X: a\r\n\tb\r\n",
           "X: a\nY: b\r\n",
           "X: a\rY: b\r\n",
           "X: a\r\r\n",
           "X\r\n",
           ": a\r\n",
           "X y: a\r\n",
           "X: \x01\r\n",
           "X: \x7F\r\n",
           "Host: b\r\n",
       })
    EXPECT_EQ(status_of(line + fields + "\r\nabc"), 400) << fields;
  EXPECT_EQ(status_of(line + std::string("X: a\0b\r\n\r\n", 10)), 400);
  EXPECT_EQ(status_of(line + "Transfer-Encoding: gzip, chunked\r\n\r\n"), 501);
  EXPECT_EQ(status_of(line + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"), 501);
  EXPECT_EQ(status_of(line + "Transfer-Encoding: xchunked\r\n\r\n"), 501);
  EXPECT_EQ(status_of("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
  EXPECT_EQ(status_of(line + "Expect: much\r\n\r\n"), 417);
}

TEST(Http, ReadsManyTinyChunks) {
  std::string bytes = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 200'000; ++i) bytes += "1\r\na\r\n";
  RequestParser parser = parsed(bytes + "0\r\n\r\n", 4096);
  EXPECT_EQ(parser.phase(), Phase::Done);
  EXPECT_EQ(parser.body(), std::string(200'000, 'a'));
}

TEST(Http, RefusesBadChunks) {
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char* body : {"-2\r\n", "+2\r\nab\r\n", " 2\r\nab\r\n", "0x2\r\nab\r\n", "g\r\n", "\r\n",
                           "2\nab\r\n", "2\r\nabc\r\n0\r\n\r\n", "2\r\nab\n0\r\n\r\n", "123456789\r\n",
                           ";x\r\n", "2;\x01\r\nab\r\n", "0\r\nbad trailer\r\n\r\n"})
    EXPECT_EQ(status_of(head + body), 400) << body;
  EXPECT_EQ(status_of(head + "7fffffff\r\n"), 413);
  EXPECT_EQ(status_of(head + "2;" + std::string(300, 'x') + "\r\nab\r\n"), 400);
  EXPECT_EQ(status_of(head + "0\r\nX: " + std::string(5000, 'x') + "\r\n\r\n"), 431);
}

TEST(Http, RefusesBadRequestLines) {
  for (const char* line :
       {"GET  / HTTP/1.1", "GET /", "GET / HTTP/1.1 ", " GET / HTTP/1.1", "GET / http/1.1", "G@T / HTTP/1.1",
        "GET /a b HTTP/1.1", "GET /a#b HTTP/1.1", "GET /%zz HTTP/1.1", "GET /%0 HTTP/1.1",
        "GET /%00 HTTP/1.1", "GET /%0a HTTP/1.1", "GET http://a/ HTTP/1.1", "GET a HTTP/1.1",
        "GET /\x80 HTTP/1.1", "GET /a\\b HTTP/1.1", "CONNECT a:80 HTTP/1.1"})
    EXPECT_EQ(status_of(std::string(line) + "\r\nHost: a\r\n\r\n"), 400) << line;
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
  EXPECT_EQ(status_of("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\n\r\n"), 200);
}

TEST(Http, RefusesHostsThatAreNone) {
  for (const char* host :
       {"a/?x=", "x/docs?", "h/#", "a b", "a:b", "a:123456", "[::1", "[]", "[::1]x", ":80", "a@b", ""})
    EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: " + std::string(host) + "\r\n\r\n"), 400) << host;
  for (const char* host : {"a", "a.example:8080", "[::1]:80", "127.0.0.1", "a_b"})
    EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: " + std::string(host) + "\r\n\r\n"), 200) << host;
}

TEST(Http, KeepsItsLimits) {
  const HttpLimits limits{.target = 64, .head = 512, .fields = 4, .body = 16};
  const auto refused = [&](const std::string& bytes) {
    const RequestParser parser = parsed(bytes, 7, limits);
    return parser.phase() == Phase::Failed ? parser.fault().status : 0;
  };
  EXPECT_EQ(refused("GET /" + std::string(64, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n"), 414);
  EXPECT_EQ(refused("GET /" + std::string(64000, 'a')), 414);
  EXPECT_EQ(refused("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(600, 'a')), 431);
  EXPECT_EQ(refused("GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 1\r\nC: 1\r\nD: 1\r\n\r\n"), 431);
  EXPECT_EQ(refused("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 17\r\n\r\n"), 413);
  EXPECT_EQ(
      refused("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n123456789\r\n8\r\n"),
      413);
}

TEST(Http, FindsTheSameFaultInWhateverPieces) {
  // A section that is too long and, further on, a line that ends badly: what comes first counts.
  const HttpLimits limits{.target = 64, .head = 128, .trailer = 32};
  const std::string chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
  for (const std::string& bytes :
       {"GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(120, 'a') + "\rb",
        chunked + "X: " + std::string(40, 'a') + "\rb",
        chunked + "X: " + std::string(20, 'a') + "\r\nY: " + std::string(20, 'b') + "\rb"})
    for (const size_t piece : {1, 7, 1 << 20})
      EXPECT_EQ(parsed(bytes, piece, limits).fault().status, 431) << bytes << " in pieces of " << piece;
  EXPECT_EQ(parsed(chunked + "X: 1\rb", 1 << 20, limits).fault().status, 400);
}

TEST(Http, SaysWhetherTheConnectionStays) {
  const auto stays = [](const std::string& version, const std::string& connection) {
    return parsed("GET / HTTP/" + version + "\r\nHost: a\r\n" + connection + "\r\n").head().keep_alive;
  };
  EXPECT_TRUE(stays("1.1", ""));
  EXPECT_FALSE(stays("1.1", "Connection: close\r\n"));
  EXPECT_FALSE(stays("1.1", "Connection: upgrade, Close\r\n"));
  EXPECT_FALSE(stays("1.1", "Connection: keep-alive\r\nConnection: close\r\n"));
  EXPECT_FALSE(stays("1.0", ""));
  EXPECT_TRUE(stays("1.0", "Connection: Keep-Alive\r\n"));
}

TEST(Http, DecodesEscapes) {
  EXPECT_EQ(decode_percent("a%2Fb%20c"), "a/b c");
  EXPECT_EQ(decode_percent("%"), std::nullopt);
  EXPECT_EQ(decode_percent("%4"), std::nullopt);
  EXPECT_EQ(decode_percent("%1f"), std::nullopt);
}

}  // namespace
}  // namespace sluice::server

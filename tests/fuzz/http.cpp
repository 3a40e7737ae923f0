// Any bytes as a stream of HTTP requests: the same reading however they come in pieces, and never another one than that
// of Boost.Beast where both take them for a request.
#include <boost/beast/http.hpp>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http.h"

namespace {

using namespace sluice::server;
namespace http = boost::beast::http;

constexpr HttpLimits kLimits = {
    .target = 256, .head = 1024, .fields = 16, .body = 2048, .chunk_line = 64, .trailer = 256};

struct Reading {
  std::string method, target, body;
  bool chunked = false;
  size_t begin = 0, end = 0;  // in the stream
  friend bool operator==(const Reading&, const Reading&) = default;
};

struct Stream {
  std::vector<Reading> requests;
  int fault = 0;
  friend bool operator==(const Stream&, const Stream&) = default;
};

// `piece` bytes come at a time.
Stream read(std::string_view bytes, size_t piece) {
  Stream stream;
  RequestParser parser(kLimits);
  size_t at = 0, begin = 0;
  while (at < bytes.size() && stream.fault == 0) {
    const size_t used = parser.feed(bytes.substr(at, piece));
    at += used;
    if (parser.phase() == RequestParser::Phase::Failed) {
      stream.fault = parser.fault().status;
    } else if (parser.phase() == RequestParser::Phase::Done) {
      const RequestHead& head = parser.head();
      stream.requests.push_back({head.method, head.target, parser.body(), head.chunked, begin, at});
      if (parser.body().size() > kLimits.body || head.fields.size() > kLimits.fields) std::abort();
      parser.reset();
      begin = at;
    } else if (used == 0) {
      std::abort();  // bytes that are neither taken nor refused
    }
  }
  return stream;
}

void compare_with_beast(std::string_view bytes, const Reading& ours) {
  http::request_parser<http::string_body> parser;
  parser.eager(true);
  boost::beast::error_code error;
  size_t at = ours.begin;
  while (!parser.is_done() && !error && at < ours.end) {
    const size_t used = parser.put(boost::asio::buffer(bytes.substr(at, ours.end - at)), error);
    at += used;
    if (used == 0) break;
  }
  if (error || !parser.is_done()) return;  // it is stricter here
  const auto& theirs = parser.get();
  if (theirs.method_string() != ours.method || theirs.target() != ours.target || theirs.body() != ours.body ||
      at != ours.end)
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 16384) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Stream whole = read(bytes, size);
  if (!(whole == read(bytes, 1)) || !(whole == read(bytes, 7))) std::abort();
  for (const Reading& reading : whole.requests) compare_with_beast(bytes, reading);
  return 0;
}

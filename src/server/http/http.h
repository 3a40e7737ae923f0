// HTTP/1.1 requests from bytes, strictly: what two readers could take for two different messages is refused.
//
// Bare line feeds, folded lines, blanks before a colon, repeated or conflicting lengths, transfer codings other than
// chunked, signs and overflows in numbers: all end in a fault and a closed connection. Boost.Beast's parser unfolds lines
// and accepts repeated equal lengths, so framing is our own and Beast is the judge of it in tests/fuzz/http.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::server {

struct HttpLimits {
  size_t target = size_t{8} << 10;   // bytes of the request target
  size_t head = size_t{32} << 10;    // bytes of request line and fields together
  size_t fields = 100;               // number of them
  size_t body = size_t{32} << 20;    // bytes, decoded
  size_t chunk_line = 256;           // bytes of a chunk's size and extensions
  size_t trailer = size_t{4} << 10;  // bytes of the fields behind the last chunk
};

struct HeaderField {
  std::string name;  // lower case
  std::string value;
};

struct RequestHead {
  std::string method;
  std::string target;  // "/path?query", checked: visible ASCII, complete percent escapes, no fragment
  int minor_version = 1;
  std::vector<HeaderField> fields;

  // Of the fields, made concrete.
  std::string host;
  std::optional<uint64_t> content_length;
  bool chunked = false;
  bool keep_alive = true;
  bool expects_continue = false;

  std::string_view path() const;
  std::string_view query() const;
  // The first of that name, which is given in lower case; null where there is none.
  const std::string* find(std::string_view name) const;
  size_t count(std::string_view name) const;
  bool has_body() const { return chunked || content_length.value_or(0) > 0; }
};

struct HttpFault {
  int status = 400;
  std::string message;
};

// One request after the other out of a stream of bytes that comes in any pieces.
class RequestParser {
 public:
  enum class Phase : uint8_t { Head, Body, Done, Failed };

  explicit RequestParser(const HttpLimits& limits) : limits_(limits) {}

  // Takes bytes and says how many. Stops behind the head, so that the request can be judged by it, and behind the body.
  size_t feed(std::string_view bytes);

  Phase phase() const { return phase_; }
  bool started() const { return head_bytes_ > 0; }  // a byte of this request has come
  // As far as it is known, whatever came behind it: an answer to HEAD has no body.
  bool is_head_request() const {
    return head_.method == "HEAD" || (part_ == Part::RequestLine && line_.starts_with("HEAD "));
  }
  const RequestHead& head() const { return head_; }  // REQUIRES: behind the head
  std::string& body() { return body_; }              // what has come of it
  const HttpFault& fault() const { return fault_; }  // REQUIRES: Failed
  // For the next request of the connection. REQUIRES: Done
  void reset();

 private:
  enum class Part : uint8_t { RequestLine, Fields, Length, ChunkSize, ChunkData, ChunkEnd, Trailer };

  void fail(int status, std::string message);
  bool take_line(std::string_view bytes, size_t& used, size_t limit);
  void feed_head(std::string_view bytes, size_t& used);
  void feed_body(std::string_view bytes, size_t& used);
  void feed_chunk_line(std::string_view bytes, size_t& used);
  void feed_chunk_end(std::string_view bytes, size_t& used);
  void feed_trailer(std::string_view bytes, size_t& used);
  void take_data(std::string_view bytes, size_t& used);
  void read_request_line();
  void read_field();
  void finish_head();
  void read_length();
  void read_coding();
  void read_connection();
  void read_chunk_size();

  HttpLimits limits_;
  Phase phase_ = Phase::Head;
  Part part_ = Part::RequestLine;
  RequestHead head_;
  std::string body_;
  HttpFault fault_;
  std::string line_;       // of head, chunk sizes and trailer, without its end once it is complete
  size_t head_bytes_ = 0;  // so far
  size_t trailer_bytes_ = 0;
  uint64_t left_ = 0;        // bytes of the body or chunk still to come
  bool blank_seen_ = false;  // one empty line before the request line is let pass
};

// "%41" to "A"; nothing where an escape is incomplete or stands for a control character.
std::optional<std::string> decode_percent(std::string_view text);
// A host name or address with an optional port, as in Host: letters, digits, ".-_", or brackets around an IPv6 address.
bool is_host(std::string_view text);
bool is_token(std::string_view text);
bool equals_ignoring_case(std::string_view a, std::string_view b);
std::string to_lower(std::string_view text);
// Without blanks and tabs at both ends.
std::string_view trim(std::string_view text);

}  // namespace sluice::server

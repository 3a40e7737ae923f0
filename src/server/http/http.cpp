#include "server/http/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sluice::server {

namespace {

// Characters that a target may not hold although they are visible.
constexpr std::string_view kNotInTarget = "\"<>\\^`{|}#";
constexpr size_t kMethodBytes = 32;

bool is_target(std::string_view text) {
  if (text == "*") return true;
  if (!text.starts_with('/')) return false;
  const bool visible = std::all_of(text.begin(), text.end(), [](char c) {
    return c > 0x20 && c < 0x7F && kNotInTarget.find(c) == std::string_view::npos;
  });
  return visible && decode_percent(text).has_value();
}

bool is_field_value(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == '\t' || (byte >= 0x20 && byte != 0x7F);
  });
}

bool is_field_line(std::string_view line) {
  const size_t colon = line.find(':');
  return colon != std::string_view::npos && is_token(line.substr(0, colon)) &&
         is_field_value(line.substr(colon + 1));
}

// The words of a list like "a, b", lower case.
std::vector<std::string> list_words(std::string_view text) {
  std::vector<std::string> words;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view word = trim(text.substr(0, comma));
    if (!word.empty()) words.push_back(to_lower(word));
    if (comma == std::string_view::npos) return words;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

void RequestParser::fail(int status, std::string message) {
  phase_ = Phase::Failed;
  fault_ = {status, std::move(message)};
}

void RequestParser::reset() {
  *this = RequestParser(limits_);
}

size_t RequestParser::feed(std::string_view bytes) {
  size_t used = 0;
  if (phase_ == Phase::Head) {
    feed_head(bytes, used);
  } else if (phase_ == Phase::Body) {
    feed_body(bytes, used);
  }
  return used;
}

// Adds to line_ up to its end; true when it is complete. `limit` bounds the line with its end. A caller that bounds
// several lines together passes no more than one byte beyond what they may still take, so that the byte that is too
// many is the last one read and the same fault is found however the bytes come in pieces.
bool RequestParser::take_line(std::string_view bytes, size_t& used, size_t limit) {
  while (used < bytes.size()) {
    const char c = bytes[used++];
    const bool after_return = !line_.empty() && line_.back() == '\r';
    if (after_return != (c == '\n')) {
      fail(400, "a line of the request does not end with CR LF");
      return false;
    }
    if (c == '\n') {
      line_.pop_back();
      return true;
    }
    line_ += c;
    if (line_.size() + 1 >= limit) return true;  // too long: the caller sees that by its size
  }
  return false;
}

void RequestParser::feed_head(std::string_view bytes, size_t& used) {
  while (phase_ == Phase::Head && used < bytes.size()) {
    const size_t before = used;
    const bool first = part_ == Part::RequestLine;
    const size_t limit = first ? limits_.target + kMethodBytes + 16 : limits_.head + 2;
    const bool complete = take_line(bytes.substr(0, used + limits_.head + 1 - head_bytes_), used, limit);
    head_bytes_ += used - before;
    if (phase_ == Phase::Failed) return;
    if (head_bytes_ > limits_.head)
      return fail(431, fmt::format("the header is larger than {} bytes", limits_.head));
    if (!complete) return;
    if (first && line_.size() + 1 >= limit)
      return fail(414, fmt::format("the request target is longer than {} bytes", limits_.target));
    if (first) {
      read_request_line();
    } else if (line_.empty()) {
      finish_head();
    } else {
      read_field();
    }
    line_.clear();
  }
}

void RequestParser::read_request_line() {
  if (line_.empty()) {
    if (std::exchange(blank_seen_, true)) fail(400, "the request begins with empty lines");
    return;
  }
  const size_t first = line_.find(' '), last = line_.rfind(' ');
  if (first == std::string::npos || first == last)
    return fail(400, "the request line is not 'METHOD TARGET HTTP/1.1'");
  head_.method = line_.substr(0, first);
  head_.target = line_.substr(first + 1, last - first - 1);
  const std::string_view version = std::string_view(line_).substr(last + 1);
  if (!is_token(head_.method) || head_.method.size() > kMethodBytes)
    return fail(400, "the request's method is no token");
  if (head_.target.size() > limits_.target)
    return fail(414, fmt::format("the request target is longer than {} bytes", limits_.target));
  if (!is_target(head_.target))
    return fail(400, "the request target is not a path, or holds characters that must be escaped");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    const bool other = version.size() == 8 && version.starts_with("HTTP/");
    return fail(other ? 505 : 400, "the request's version is neither HTTP/1.1 nor HTTP/1.0");
  }
  head_.minor_version = version.back() - '0';
  part_ = Part::Fields;
}

void RequestParser::read_field() {
  if (line_.front() == ' ' || line_.front() == '\t') return fail(400, "a header line is folded");
  if (!is_field_line(line_))
    return fail(400, "a header line is not 'name: value', or holds control characters");
  if (head_.fields.size() == limits_.fields)
    return fail(431, fmt::format("the header has more than {} lines", limits_.fields));
  const size_t colon = line_.find(':');
  head_.fields.push_back({to_lower(std::string_view(line_).substr(0, colon)),
                          std::string(trim(std::string_view(line_).substr(colon + 1)))});
}

void RequestParser::finish_head() {
  const size_t hosts = head_.count("host");
  if (hosts > 1 || (hosts == 0 && head_.minor_version == 1))
    return fail(400, "the request needs exactly one Host line");
  if (hosts == 1) {
    head_.host = *head_.find("host");
    if (!is_host(head_.host)) return fail(400, "the Host line is no host name or address");
  }
  read_length();
  if (phase_ != Phase::Failed) read_coding();
  if (phase_ != Phase::Failed) read_connection();
  if (phase_ == Phase::Failed) return;
  left_ = head_.content_length.value_or(0);
  part_ = head_.chunked ? Part::ChunkSize : Part::Length;
  phase_ = head_.has_body() ? Phase::Body : Phase::Done;
}

void RequestParser::read_length() {
  const size_t lengths = head_.count("content-length");
  if (lengths == 0) return;
  const std::string& text = *head_.find("content-length");
  const bool digits = !text.empty() && text.size() <= 18 &&
                      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (lengths > 1 || !digits) return fail(400, "Content-Length is not one number");
  uint64_t value = 0;
  for (const char digit : text) value = value * 10 + static_cast<uint64_t>(digit - '0');
  if (value > limits_.body)
    return fail(413, fmt::format("the body has {} bytes; the limit is {}", value, limits_.body));
  head_.content_length = value;
}

void RequestParser::read_coding() {
  const size_t codings = head_.count("transfer-encoding");
  if (codings == 0) return;
  if (head_.content_length) return fail(400, "Content-Length and Transfer-Encoding exclude each other");
  if (head_.minor_version == 0) return fail(400, "HTTP/1.0 has no Transfer-Encoding");
  if (codings > 1 || !equals_ignoring_case(*head_.find("transfer-encoding"), "chunked"))
    return fail(501, "the only Transfer-Encoding known here is chunked");
  head_.chunked = true;
}

void RequestParser::read_connection() {
  head_.keep_alive = head_.minor_version == 1;
  bool closes = false;
  for (const HeaderField& field : head_.fields) {
    if (field.name == "connection") {
      for (const std::string& word : list_words(field.value)) {
        closes |= word == "close";
        head_.keep_alive |= word == "keep-alive";
      }
    }
    if (field.name != "expect" || head_.minor_version == 0) continue;
    if (!equals_ignoring_case(field.value, "100-continue"))
      return fail(417, "the only Expect known here is 100-continue");
    head_.expects_continue = true;
  }
  head_.keep_alive &= !closes;
}

void RequestParser::feed_body(std::string_view bytes, size_t& used) {
  while (phase_ == Phase::Body && used < bytes.size()) {
    switch (part_) {
      case Part::ChunkSize:
        feed_chunk_line(bytes, used);
        break;
      case Part::ChunkEnd:
        feed_chunk_end(bytes, used);
        break;
      case Part::Trailer:
        feed_trailer(bytes, used);
        break;
      default:
        take_data(bytes, used);
    }
  }
}

void RequestParser::take_data(std::string_view bytes, size_t& used) {
  const auto part = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size() - used));
  body_.append(bytes.substr(used, part));
  used += part;
  left_ -= part;
  if (left_ > 0) return;
  if (part_ == Part::Length) {
    phase_ = Phase::Done;
  } else {
    part_ = Part::ChunkEnd;
  }
}

void RequestParser::feed_chunk_line(std::string_view bytes, size_t& used) {
  const bool complete = take_line(bytes, used, limits_.chunk_line);
  if (phase_ == Phase::Failed || !complete) return;
  read_chunk_size();
  line_.clear();
}

void RequestParser::read_chunk_size() {
  const std::string_view digits = std::string_view(line_).substr(0, line_.find(';'));
  uint64_t size = 0;
  bool good =
      !digits.empty() && digits.size() <= 8 && line_.size() + 1 < limits_.chunk_line && is_field_value(line_);
  for (const char c : digits) {
    const bool letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    good &= letter || (c >= '0' && c <= '9');
    size = size * 16 + static_cast<uint64_t>(letter ? (c | 0x20) - 'a' + 10 : c - '0');
  }
  if (!good) return fail(400, "the size of a chunk is not a hexadecimal number of up to 8 digits");
  if (size > limits_.body - body_.size())
    return fail(413, fmt::format("the body is larger than {} bytes", limits_.body));
  left_ = size;
  part_ = size == 0 ? Part::Trailer : Part::ChunkData;
}

void RequestParser::feed_chunk_end(std::string_view bytes, size_t& used) {
  const bool complete = take_line(bytes, used, 4);
  if (phase_ == Phase::Failed) return;
  if (complete && !line_.empty()) return fail(400, "a chunk is longer than its size says");
  if (complete) part_ = Part::ChunkSize;
}

void RequestParser::feed_trailer(std::string_view bytes, size_t& used) {
  const size_t before = used;
  const bool complete =
      take_line(bytes.substr(0, used + limits_.trailer + 1 - trailer_bytes_), used, limits_.trailer + 2);
  trailer_bytes_ += used - before;
  if (phase_ == Phase::Failed) return;
  if (trailer_bytes_ > limits_.trailer)
    return fail(431, fmt::format("the trailer is larger than {} bytes", limits_.trailer));
  if (!complete) return;
  if (line_.empty()) {
    phase_ = Phase::Done;
  } else if (!is_field_line(line_)) {
    fail(400, "a trailer line is not 'name: value'");
  }
  line_.clear();
}

}  // namespace sluice::server

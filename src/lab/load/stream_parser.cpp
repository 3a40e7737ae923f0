#include "lab/load/stream_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace sluice::lab {

namespace {

constexpr size_t kMostHead = 64 << 10, kMostErrorBody = 4096;

// The number behind "key": ; 0 where it is not there.
int counted(std::string_view line, std::string_view key) {
  const size_t at = line.rfind(key);
  if (at == line.npos) return 0;
  size_t begin = at + key.size();
  while (begin < line.size() && (line[begin] == ' ' || line[begin] == ':')) ++begin;
  int value = 0;
  std::from_chars(line.data() + begin, line.data() + line.size(), value);
  return value;
}

// Whether `"key":` is followed by a string that is not empty.
bool has_text(std::string_view line, std::string_view key) {
  size_t at = line.find(key);
  if (at == line.npos) return false;
  at += key.size();
  while (at < line.size() && (line[at] == ' ' || line[at] == ':')) ++at;
  return at + 1 < line.size() && line[at] == '"' && line[at + 1] != '"';
}

std::string lowered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

}  // namespace

void StreamParser::fail(std::string message) {
  if (error_.empty()) error_ = std::move(message);
  state_ = State::Done;
}

bool StreamParser::take_head(Found& found) {
  const size_t end = pending_.find("\r\n\r\n");
  if (end == pending_.npos) {
    if (pending_.size() > kMostHead) fail("the answer's head is too long");
    return false;
  }
  const std::string head = lowered(std::string_view(pending_).substr(0, end + 2));
  pending_.erase(0, end + 4);
  if (!head.starts_with("http/1.") || head.size() < 12) {
    fail("the answer is not HTTP/1.1");
    return false;
  }
  std::from_chars(head.data() + 9, head.data() + 12, status_);
  if (head.find("\r\ntransfer-encoding: chunked") != head.npos) {
    state_ = State::ChunkSize;
  } else if (const size_t at = head.find("\r\ncontent-length:"); at != head.npos) {
    left_ = static_cast<uint64_t>(std::max(0, counted(std::string_view(head).substr(at), "content-length:")));
    state_ = State::Length;
    found.done = left_ == 0;
  } else {
    state_ = State::ToClose;
  }
  return true;
}

bool StreamParser::take_chunk_size() {
  const size_t end = pending_.find("\r\n");
  if (end == pending_.npos) return false;
  const auto [stop, problem] = std::from_chars(pending_.data(), pending_.data() + end, left_, 16);
  if (problem != std::errc()) {
    fail("a chunk of the answer has no length");
    return false;
  }
  pending_.erase(0, end + 2);
  state_ = left_ == 0 ? State::Done : State::Chunk;
  return true;
}

void StreamParser::take_line(std::string_view line, Found& found) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (!line.starts_with("data:")) return;
  line.remove_prefix(5);
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (line == "[DONE]") {
    ended_ = true;
    return;
  }
  if (line.starts_with("{\"error\"")) return fail(std::string(line.substr(0, 300)));
  if (line.find("\"usage\":{") != line.npos || line.find("\"usage\": {") != line.npos) {
    prompt_tokens_ = std::max(prompt_tokens_, counted(line, "\"prompt_tokens\""));
    output_tokens_ = std::max(output_tokens_, counted(line, "\"completion_tokens\""));
  }
  if (has_text(line, "\"text\"") || has_text(line, "\"content\"")) ++found.pieces;
}

void StreamParser::take_body(std::string_view body, Found& found) {
  if (status_ != 200) {
    if (body_.size() < kMostErrorBody) body_.append(body);
    return;
  }
  for (size_t end = body.find('\n'); end != body.npos; end = body.find('\n')) {
    if (line_.empty()) {
      take_line(body.substr(0, end), found);
    } else {
      line_.append(body.substr(0, end));
      take_line(line_, found);
      line_.clear();
    }
    body.remove_prefix(end + 1);
  }
  line_.append(body);
}

StreamParser::Found StreamParser::feed(std::string_view bytes) {
  Found found;
  pending_.append(bytes);
  while (state_ != State::Done && error_.empty()) {
    if (state_ == State::Head) {
      if (!take_head(found)) break;
    } else if (state_ == State::ChunkSize) {
      if (!take_chunk_size()) break;
    } else if (state_ == State::ChunkEnd) {
      if (pending_.size() < 2) break;
      pending_.erase(0, 2);
      state_ = State::ChunkSize;
    } else {
      if (pending_.empty() && !(state_ == State::Length && left_ == 0)) break;
      const size_t count = state_ == State::ToClose
                               ? pending_.size()
                               : static_cast<size_t>(std::min<uint64_t>(left_, pending_.size()));
      take_body(std::string_view(pending_).substr(0, count), found);
      pending_.erase(0, count);
      left_ -= std::min<uint64_t>(left_, count);
      if (state_ == State::Chunk && left_ == 0) state_ = State::ChunkEnd;
      if (state_ == State::Length && left_ == 0) state_ = State::Done;
    }
  }
  if (state_ == State::Done && status_ != 200 && error_.empty())
    error_ = fmt::format("status {}: {}", status_, body_.substr(0, 300));
  if (state_ == State::Done && status_ == 200 && !ended_ && error_.empty())
    error_ = "the stream ended without [DONE]";
  found.done = state_ == State::Done;
  return found;
}

void StreamParser::close() {
  if (state_ == State::Done) return;
  if (state_ == State::ToClose && status_ == 200 && ended_) {
    state_ = State::Done;
    return;
  }
  fail(status_ != 0 && status_ != 200 ? fmt::format("status {}: {}", status_, body_.substr(0, 300))
                                      : "the connection was closed before the answer's end");
}

}  // namespace sluice::lab

#include "route/response_tracker.h"

#include <algorithm>
#include <charconv>

#include "server/http/http.h"

namespace sluice::route {

namespace {

constexpr size_t kMostHead = size_t{64} << 10, kMostLine = 4096;

bool read_number(std::string_view text, int base, uint64_t& out) {
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return fault == std::errc{} && end == text.data() + text.size();
}

}  // namespace

size_t ResponseTracker::feed(std::string_view bytes) {
  size_t used = 0;
  if (phase_ == Phase::Head) {
    const size_t before = head_.size();
    head_ += bytes.substr(0, kMostHead + 1 - std::min(before, kMostHead));
    const size_t end = head_.find("\r\n\r\n", before < 3 ? 0 : before - 3);
    if (end == std::string::npos) {
      if (head_.size() > kMostHead) phase_ = Phase::Failed;
      return bytes.size();
    }
    head_.resize(end + 4);
    used = head_.size() - before;
    read_head();
  }
  const std::string_view body = bytes.substr(used);
  if (phase_ != Phase::Body) return used;
  if (framing_ == Framing::UntilClose) return bytes.size();
  if (framing_ == Framing::Chunked) return used + feed_chunks(body);
  const auto taken = static_cast<size_t>(std::min<uint64_t>(left_, body.size()));
  left_ -= taken;
  if (left_ == 0) phase_ = Phase::Done;
  return used + taken;
}

void ResponseTracker::finish() {
  if (phase_ == Phase::Done) return;
  phase_ = phase_ == Phase::Body && framing_ == Framing::UntilClose ? Phase::Done : Phase::Failed;
}

void ResponseTracker::read_head() {
  phase_ = Phase::Failed;
  uint64_t status = 0;
  if (!head_.starts_with("HTTP/1.") || head_.size() < 13) return;
  if (!read_number(std::string_view(head_).substr(9, 3), 10, status)) return;
  status_ = static_cast<int>(status);
  keep_alive_ = head_.starts_with("HTTP/1.1");
  for (size_t at = head_.find("\r\n") + 2; at + 2 < head_.size();) {
    const size_t end = head_.find("\r\n", at);
    const std::string_view line = std::string_view(head_).substr(at, end - at);
    const size_t colon = line.find(':');
    at = end + 2;
    if (colon == std::string_view::npos) return;
    const std::string name = server::to_lower(line.substr(0, colon));
    const std::string value = server::to_lower(server::trim(line.substr(colon + 1)));
    if (name == "content-length") {
      if (!read_number(value, 10, left_)) return;
      if (framing_ == Framing::UntilClose) framing_ = Framing::Length;
    }
    if (name == "transfer-encoding" && value == "chunked") framing_ = Framing::Chunked;
    if (name == "connection" && value == "close") keep_alive_ = false;
  }
  const bool empty =
      bodiless_ || status_ == 204 || status_ == 304 || (framing_ == Framing::Length && left_ == 0);
  if (empty) framing_ = Framing::Length;
  phase_ = empty ? Phase::Done : Phase::Body;
}

size_t ResponseTracker::feed_chunks(std::string_view bytes) {
  size_t used = 0;
  while (used < bytes.size() && phase_ == Phase::Body) {
    if (part_ == Part::Data) {
      const auto taken = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size() - used));
      left_ -= taken;
      used += taken;
      if (left_ == 0) part_ = Part::DataEnd;
      continue;
    }
    line_ += bytes[used++];
    if (line_.size() > kMostLine) phase_ = Phase::Failed;
    if (line_.ends_with("\r\n")) end_line();
  }
  return used;
}

void ResponseTracker::end_line() {
  line_.resize(line_.size() - 2);
  if (part_ == Part::Size) {
    const std::string_view size = server::trim(std::string_view(line_).substr(0, line_.find(';')));
    if (!read_number(size, 16, left_)) phase_ = Phase::Failed;
    part_ = left_ == 0 ? Part::Trailer : Part::Data;
  } else if (part_ == Part::DataEnd) {
    if (!line_.empty()) phase_ = Phase::Failed;
    part_ = Part::Size;
  } else if (line_.empty()) {
    phase_ = Phase::Done;
  }
  line_.clear();
}

}  // namespace sluice::route

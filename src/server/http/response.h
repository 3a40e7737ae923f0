// The bytes of HTTP answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::server {

struct ResponseHead {
  int status = 200;
  std::string content_type;  // empty: there is no body
  // Absent: a body of unknown length follows, in chunks, or up to the end of the connection for HTTP/1.0.
  std::optional<size_t> length;
  int minor_version = 1;
  bool close = false;
  std::vector<std::pair<std::string, std::string>> fields;  // values without control characters
};

std::string write_head(const ResponseHead& head);
// One chunk of a body of unknown length; nothing for no bytes, which would end it.
void append_chunk(std::string& out, std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";
inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
std::string_view reason_phrase(int status);

}  // namespace sluice::server

#include "server/http/response.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace sluice::server {

namespace {

struct Phrase {
  int status;
  std::string_view text;
};

constexpr auto kPhrases = std::to_array<Phrase>({
    {200, "OK"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {529, "Overloaded"},
});

}  // namespace

std::string_view reason_phrase(int status) {
  const auto* found = std::find_if(kPhrases.begin(), kPhrases.end(),
                                   [&](const Phrase& phrase) { return phrase.status == status; });
  return found == kPhrases.end() ? "Unknown" : found->text;
}

std::string write_head(const ResponseHead& head) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", head.status, reason_phrase(head.status));
  const auto add = [&](std::string_view name, std::string_view value) {
    fmt::format_to(std::back_inserter(out), "{}: {}\r\n", name, value);
  };
  if (!head.content_type.empty()) add("content-type", head.content_type);
  if (head.length) {
    if (head.status != 204 && head.status != 304) add("content-length", std::to_string(*head.length));
  } else if (head.minor_version == 1) {
    add("transfer-encoding", "chunked");
  }
  add("connection", head.close || (!head.length && head.minor_version == 0) ? "close" : "keep-alive");
  add("x-content-type-options", "nosniff");
  for (const auto& [name, value] : head.fields) add(name, value);
  out += "\r\n";
  return out;
}

void append_chunk(std::string& out, std::string_view bytes) {
  if (bytes.empty()) return;
  fmt::format_to(std::back_inserter(out), "{:x}\r\n{}\r\n", bytes.size(), bytes);
}

}  // namespace sluice::server

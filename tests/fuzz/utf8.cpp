// Any bytes in any cut: the stream and the whole agree, hold at most 3 bytes and are valid UTF-8.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "chat/stop_strings.h"
#include "unicode/utf8_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  using namespace sluice::unicode;
  using namespace sluice::chat;
  if (size < 2) return 0;
  const size_t cut = 1 + data[0] % 7;
  const size_t stop_size = data[1] % 8;
  const std::string bytes(reinterpret_cast<const char*>(data + 2), size - 2);
  Utf8Stream stream;
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += cut) {
    stream.push(std::string_view(bytes).substr(i, cut), out);
    if (stream.held() > 3) std::abort();
  }
  stream.finish(out);
  if (out != to_valid_utf8(bytes) || !is_valid_utf8(out)) std::abort();
  if (is_valid_utf8(bytes) != (out == bytes)) std::abort();
  if (stop_size == 0 || stop_size > bytes.size()) return 0;

  const std::string stop = bytes.substr(bytes.size() - stop_size);
  auto matcher = StopMatcher::make({&stop, 1});
  if (!matcher.ok()) std::abort();
  std::string before;
  bool is_stopped = false;
  for (size_t i = 0; i < bytes.size() && !is_stopped; i += cut) {
    auto step = matcher->push(std::string_view(bytes).substr(i, cut));
    before += step.text;
    is_stopped = step.stopped_by.has_value();
  }
  if (!is_stopped || before != bytes.substr(0, bytes.find(stop))) std::abort();
  return 0;
}

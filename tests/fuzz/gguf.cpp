// Any bytes as a GGUF file: an error, or tensors and strings that lie inside the bytes.
#include "formats/gguf/gguf.h"

#include <cstdlib>

namespace {

using sluice::Result;
using sluice::formats::Gguf;
using sluice::formats::GgufArray;

// Reads both ends of every range that the reader gave out, for the sanitizer to judge.
size_t touch(std::string_view bytes) {
  return bytes.empty() ? 0
                       : static_cast<unsigned char>(bytes.front()) + static_cast<unsigned char>(bytes.back());
}

size_t touch_tensors(const Gguf& gguf) {
  size_t sum = 0;
  for (const std::string& name : gguf.tensors.names()) {
    const Result<sluice::TensorView> view = gguf.tensors.find(name);
    if (!view.ok()) continue;
    if (!view->is_contiguous()) std::abort();
    sum += touch({static_cast<const char*>(view->data), static_cast<size_t>(view->bytes())});
  }
  return sum + static_cast<size_t>(gguf.tensors.total_bytes());
}

size_t touch_values(const Gguf& gguf) {
  size_t sum = 0;
  for (const auto& [key, value] : gguf.metadata.values()) {
    const auto text = gguf.metadata.get_string(key);
    const auto texts = gguf.metadata.get_strings(key);
    if (text.ok()) sum += touch(**text);
    if (!texts.ok()) continue;
    for (const std::string_view element : **texts) sum += touch(element);
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Result<Gguf> gguf = sluice::formats::parse_gguf(bytes, "input");
  if (!gguf.ok()) return 0;
  [[maybe_unused]] static volatile size_t sink;
  sink = touch_tensors(*gguf) + touch_values(*gguf);
  return 0;
}

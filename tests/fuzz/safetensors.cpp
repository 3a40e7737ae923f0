// Any bytes as a safetensors file, as the header of one, and as an index: an error, or tensors inside the
// bytes.
#include "formats/safetensors/safetensors.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using sluice::Result;
using sluice::formats::Safetensors;

void read_file(std::string_view bytes) {
  const Result<Safetensors> file = sluice::formats::parse_safetensors(bytes, "input");
  if (!file.ok()) return;
  [[maybe_unused]] static volatile size_t sink;
  for (const std::string& name : file->tensors.names()) {
    const Result<sluice::TensorView> view = file->tensors.find(name);
    if (!view.ok()) continue;
    if (!view->is_contiguous()) std::abort();
    const char* data = static_cast<const char*>(view->data);
    if (view->bytes() > 0) sink = static_cast<size_t>(data[0] + data[view->bytes() - 1]);
  }
  if (file->tensors.total_bytes() > static_cast<int64_t>(bytes.size())) std::abort();
}

// The bytes after the first as JSON, with a length prefix that fits and as much data as the first byte says:
// most mutations of a whole file break its length prefix and get no further.
void read_header(const uint8_t* data, size_t size) {
  if (size == 0) return;
  const uint64_t length = size - 1;
  std::vector<char> file(sizeof length + length + data[0]);
  std::memcpy(file.data(), &length, sizeof length);
  std::memcpy(file.data() + sizeof length, data + 1, length);
  read_file({file.data(), file.size()});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read_file(bytes);
  read_header(data, size);
  (void)sluice::formats::parse_safetensors_index(bytes, "input").ok();
  return 0;
}

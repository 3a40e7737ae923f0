// A tokenizer.json of any bytes: refused, or a tokenizer that takes any text.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t border = input.find('\0');
  const std::string_view file = input.substr(0, border);
  const std::string_view text =
      border == std::string_view::npos ? "The 3 caf\xC3\xA9s <s>" : input.substr(border + 1);
  const auto tokenizer = tokenizer::parse_tokenizer_json(file);
  if (!tokenizer.ok()) return 0;
  const auto ids = tokenizer->encode(text.substr(0, 4096), {.parse_special = true, .add_special = true});
  if (ids.ok()) tokenizer->decode(*ids);
  (void)tokenizer->encode_with_ranges(text.substr(0, 4096)).ok();
  return 0;
}

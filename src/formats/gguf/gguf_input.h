// What the parts of the GGUF reader share: the bytes, and errors that name the file.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "formats/cursor.h"
#include "formats/gguf/gguf.h"

namespace sluice::formats {

struct GgufInput {
  std::string_view what;  // the file, as shown to a person
  Cursor in;

  template <class... Args>
  Error corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return {ErrorCode::Corrupt,
            fmt::format("{}: {}", what, fmt::format(format, std::forward<Args>(args)...))};
  }
  // REQUIRES: in.failed()
  Error truncated(std::string_view field) const {
    return corrupt("{} needs {} bytes at byte {}, the file has {} (download incomplete?)", field, in.wanted(),
                   in.position(), in.size());
  }
};

struct GgufPairs {
  GgufMetadata metadata;
  uint32_t alignment = 32;  // of tensor data; general.alignment where the file has it
};

// The smallest sizes that a key-value pair and a tensor description can have: what bounds their number in a
// file.
inline constexpr uint64_t kSmallestGgufPair = 8 + 1 + 4 + 1;  // key length, key, type, value
inline constexpr uint64_t kSmallestGgufTensor =
    8 + 1 + 4 + 4 + 8;  // name length, name, dimensions, type, offset

Result<GgufPairs> read_gguf_pairs(GgufInput& input, uint64_t count);
// Reads `count` descriptions, and checks the layout of the data that follows them in `file`.
Result<TensorStore> read_gguf_tensors(GgufInput& input, std::string_view file, uint64_t count,
                                      uint32_t alignment);

}  // namespace sluice::formats

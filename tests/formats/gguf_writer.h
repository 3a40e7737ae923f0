// Writes GGUF files for tests: valid ones by default, and any field wrong on request.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::formats {

// Type numbers of the format.
namespace gguf_type {
enum : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64 };
}
namespace ggml_type {
enum : uint32_t { F32 = 0, F16 = 1, Q4_0 = 2, Q8_0 = 8, I8 = 24, Q1_0 = 41 };
}

template <class T>
std::string raw(T number) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &number, sizeof(T));
  return bytes;
}

inline std::string raw_string(std::string_view text) {
  return raw<uint64_t>(text.size()) + std::string(text);
}

class GgufWriter {
 public:
  // Fields of the header; the counts are those of what was added, unless set.
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<uint64_t> tensor_count;
  std::optional<uint64_t> pair_count;
  uint64_t alignment = 32;  // that the writer keeps to; general.alignment is a pair like any other
  bool pad_last = true;

  GgufWriter& pair(std::string_view key, uint32_t type, std::string_view value) {
    return raw_pair(raw_string(key) + raw(type) + std::string(value));
  }
  GgufWriter& text(std::string_view key, std::string_view value) {
    return pair(key, gguf_type::String, raw_string(value));
  }
  GgufWriter& number(std::string_view key, uint32_t value) { return pair(key, gguf_type::U32, raw(value)); }
  GgufWriter& array(std::string_view key, uint32_t element, uint64_t count, std::string_view elements) {
    return pair(key, gguf_type::Array, raw(element) + raw(count) + std::string(elements));
  }
  GgufWriter& raw_pair(std::string_view bytes) {
    pairs_ += bytes;
    ++pairs_written_;
    return *this;
  }

  // Extents innermost first, as in the file. The data is `bytes` bytes that count up.
  GgufWriter& tensor(std::string_view name, std::vector<int64_t> extents, uint32_t type, uint64_t bytes) {
    return tensor_at(next_offset(), name, extents, type, bytes);
  }
  GgufWriter& tensor_at(uint64_t offset, std::string_view name, const std::vector<int64_t>& extents,
                        uint32_t type, uint64_t bytes) {
    std::string description = raw_string(name) + raw(static_cast<uint32_t>(extents.size()));
    for (const int64_t extent : extents) description += raw(extent);
    raw_tensor(description + raw(type) + raw(offset));
    data_.resize(next_offset(), '\0');
    for (uint64_t i = 0; i < bytes; ++i) data_ += static_cast<char>(i);
    return *this;
  }
  GgufWriter& raw_tensor(std::string_view bytes) {
    descriptions_ += bytes;
    ++tensors_written_;
    return *this;
  }

  std::string header() const {
    return magic + raw(version) + raw(tensor_count.value_or(tensors_written_)) +
           raw(pair_count.value_or(pairs_written_)) + pairs_ + descriptions_;
  }
  std::string finish() const {
    std::string file = header();
    if (tensors_written_ == 0) return file;
    file.resize(aligned(file.size()), '\0');
    file += data_;
    if (pad_last) file.resize(aligned(file.size()), '\0');
    return file;
  }

 private:
  uint64_t aligned(uint64_t size) const { return (size + alignment - 1) / alignment * alignment; }
  uint64_t next_offset() const { return aligned(data_.size()); }

  std::string pairs_;
  std::string descriptions_;
  std::string data_;
  uint64_t pairs_written_ = 0;
  uint64_t tensors_written_ = 0;
};

}  // namespace sluice::formats

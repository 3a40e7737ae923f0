// Metadata of GGUF files: what random_gguf writes, and what it takes from another file.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace sluice::bench {

class Header {
 public:
  template <class T>
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_text(std::string_view text) {
    put(static_cast<uint64_t>(text.size()));
    bytes_ += text;
  }
  // That hold so many keys.
  void put_bytes(std::string_view bytes, uint64_t keys) {
    bytes_ += bytes;
    count_ += keys;
  }
  void key(std::string_view name, int64_t value) {
    put_name(name);
    put(uint32_t{4});
    put(static_cast<uint32_t>(value));
  }
  void key(std::string_view name, float value) {
    put_name(name);
    put(uint32_t{6});
    put(value);
  }
  void key(std::string_view name, std::string_view value) {
    put_name(name);
    put(uint32_t{8});
    put_text(value);
  }
  void key(std::string_view name, std::initializer_list<int32_t> values) {
    put_name(name);
    put(uint32_t{9});
    put(uint32_t{5});
    put(static_cast<uint64_t>(values.size()));
    for (const int32_t value : values) put(value);
  }
  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }
  std::string aligned() const { return bytes_ + std::string((32 - bytes_.size() % 32) % 32, '\0'); }

 private:
  void put_name(std::string_view name) {
    put_text(name);
    ++count_;
  }

  std::string bytes_;
  uint64_t count_ = 0;
};

// The metadata of a GGUF file whose keys begin with "tokenizer.", as they stand there.
class TokenizerReader {
 public:
  explicit TokenizerReader(std::string bytes) : bytes_(std::move(bytes)) {}

  bool read() {
    uint32_t magic = 0, version = 0;
    uint64_t tensors = 0, keys = 0;
    if (!take(magic) || !take(version) || !take(tensors) || !take(keys) || magic != 0x46554747) return false;
    for (uint64_t i = 0; i < keys; ++i) {
      const size_t begin = at_;
      std::string_view name;
      uint32_t type = 0;
      if (!take_text(name) || !take(type) || !skip(type)) return false;
      if (!name.starts_with("tokenizer.")) continue;
      found_.append(bytes_, begin, at_ - begin);
      ++count_;
    }
    return true;
  }
  const std::string& found() const { return found_; }
  uint64_t count() const { return count_; }

 private:
  template <class T>
  bool take(T& out) {
    if (bytes_.size() - at_ < sizeof out) return false;
    std::memcpy(&out, bytes_.data() + at_, sizeof out);
    at_ += sizeof out;
    return true;
  }
  bool take_text(std::string_view& out) {
    uint64_t size = 0;
    if (!take(size) || size > bytes_.size() - at_) return false;
    out = std::string_view(bytes_).substr(at_, size);
    at_ += size;
    return true;
  }
  bool skip(uint32_t type) {
    constexpr uint32_t kString = 8, kArray = 9;
    constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    std::string_view text;
    if (type == kString) return take_text(text);
    if (type != kArray) {
      if (type >= std::size(kSizes) || bytes_.size() - at_ < kSizes[type]) return false;
      at_ += kSizes[type];
      return true;
    }
    uint32_t of = 0;
    uint64_t count = 0;
    if (!take(of) || !take(count) || of == kArray) return false;
    for (uint64_t i = 0; i < count; ++i)
      if (!skip(of)) return false;
    return true;
  }

  std::string bytes_, found_;
  size_t at_ = 0;
  uint64_t count_ = 0;
};

}  // namespace sluice::bench

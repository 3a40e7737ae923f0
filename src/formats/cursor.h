// Reads little-endian numbers and strings from bytes that may end anywhere.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace sluice::formats {

// Once a read runs past the end, it and all later ones give zero or nothing, and failed() stays true. Callers
// look at failed() before they believe a value.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }
  size_t size() const { return bytes_.size(); }
  bool failed() const { return failed_; }
  uint64_t wanted() const { return wanted_; }  // bytes that the failed read asked for

  template <class T>
  T read() {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    T value{};
    const std::string_view bytes = take(sizeof(T));
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  std::string_view take(uint64_t count) {
    if (failed_ || count > remaining()) {
      if (!failed_) wanted_ = count;
      failed_ = true;
      return {};
    }
    const std::string_view bytes = bytes_.substr(position_, count);
    position_ += count;
    return bytes;
  }

 private:
  std::string_view bytes_;
  size_t position_ = 0;
  uint64_t wanted_ = 0;
  bool failed_ = false;
};

}  // namespace sluice::formats

// A text that was rewritten, and for each of its bytes the bytes of the input it came from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::unicode {

struct TextRange {
  uint32_t begin = 0, end = 0;
  uint32_t size() const { return end - begin; }
};

class AlignedText {
 public:
  // Without tracking origin() is empty and rewriting costs no more than the text.
  explicit AlignedText(bool is_tracked = false) : is_tracked_(is_tracked) {}

  std::string_view bytes() const { return bytes_; }
  std::string_view bytes(TextRange range) const {
    return std::string_view(bytes_).substr(range.begin, range.end - range.begin);
  }
  size_t size() const { return bytes_.size(); }
  bool is_tracked() const { return is_tracked_; }
  void reserve(size_t size) { bytes_.reserve(size); }

  // Every byte of `bytes` comes from all of `origin`.
  void append(std::string_view bytes, TextRange origin) {
    bytes_ += bytes;
    if (is_tracked_) origins_.resize(bytes_.size(), origin);
  }
  // The bytes of the input from `begin` on, each from itself.
  void append_input(std::string_view bytes, uint32_t begin) {
    bytes_ += bytes;
    if (!is_tracked_) return;
    for (size_t i = 0; i < bytes.size(); ++i, ++begin) origins_.push_back({begin, begin + 1});
  }
  void append(const AlignedText& other, TextRange range) {
    bytes_ += other.bytes(range);
    if (!is_tracked_) return;
    origins_.insert(origins_.end(), other.origins_.begin() + range.begin, other.origins_.begin() + range.end);
  }

  // What the bytes of a range came from; for an empty range an empty place.
  TextRange origin(TextRange range) const {
    if (!is_tracked_ || origins_.empty()) return {};
    if (range.begin >= range.end) {
      const uint32_t place =
          range.begin < origins_.size() ? origins_[range.begin].begin : origins_.back().end;
      return {place, place};
    }
    TextRange all = origins_[range.begin];
    for (uint32_t i = range.begin + 1; i < range.end; ++i) {
      all = {std::min(all.begin, origins_[i].begin), std::max(all.end, origins_[i].end)};
    }
    return all;
  }

 private:
  std::string bytes_;
  std::vector<TextRange> origins_;
  bool is_tracked_;
};

}  // namespace sluice::unicode

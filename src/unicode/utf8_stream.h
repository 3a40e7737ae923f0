// Bytes in any cut, valid UTF-8 out.
#pragma once

#include <string>
#include <string_view>

namespace sluice::unicode {

// Holds back at most the 3 bytes of an unfinished character. Bytes that are not UTF-8 become U+FFFD, one for
// each maximal subpart of an ill-formed sequence (Unicode 15, chapter 3.9): the output does not depend on the
// cut.
class Utf8Stream {
 public:
  // Appends the text that is certain after these bytes to `out`.
  void push(std::string_view bytes, std::string& out);
  // Appends U+FFFD where a character is unfinished.
  void finish(std::string& out);
  size_t held() const { return size_; }

 private:
  char bytes_[4] = {};
  size_t size_ = 0;
};

// All at once.
std::string to_valid_utf8(std::string_view bytes);
bool is_valid_utf8(std::string_view bytes);

}  // namespace sluice::unicode

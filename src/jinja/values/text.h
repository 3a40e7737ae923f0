// Text that remembers which of its bytes a user wrote. Every operation of the template language builds its
// result from pieces of Text, so the mark follows a user's bytes wherever a template puts them.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/limits.h"

namespace sluice::jinja {

struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
};

class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, bool user = false) : bytes_(std::move(bytes)) {
    if (user && !bytes_.empty()) marks_.push_back({0, bytes_.size()});
  }

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  // Ranges written by the user: sorted, disjoint, not adjacent, not empty.
  const std::vector<ByteRange>& marks() const { return marks_; }
  bool marked_at(size_t position) const;

  // Already escaped for HTML (the `safe` and `escape` filters): `+` escapes what is added to it.
  bool markup() const { return markup_; }
  void set_markup(bool markup) { markup_ = markup; }

  void append(std::string_view bytes, bool user);
  void append(const Text& other, ByteRange range);
  void append(const Text& other) { append(other, {0, other.size()}); }

  // Calls visit(range, marked) for each run of equal mark inside `range`, in order.
  template <class Visit>
  void for_runs(ByteRange range, Visit visit) const;

 private:
  size_t first_mark_ending_after(size_t position) const;

  std::string bytes_;
  std::vector<ByteRange> marks_;
  bool markup_ = false;
};

// Builds a Text under a bound: an append that would pass it fails before memory is taken.
class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget) : budget_(budget) {}

  void add(std::string_view bytes, bool user = false) {
    grow(bytes.size());
    text_.append(bytes, user);
  }
  void add(const Text& text) { add(text, {0, text.size()}); }
  void add(const Text& text, ByteRange range) {
    grow(range.end - range.begin);
    text_.append(text, range);
  }
  void fill(size_t count, std::string_view unit);

  size_t size() const { return text_.size(); }
  const Text& text() const { return text_; }
  Text take() { return std::move(text_); }

 private:
  void grow(size_t bytes) {
    budget_.require(text_.size() + bytes + text_.marks().size() * sizeof(ByteRange));
  }

  Budget& budget_;
  Text text_;
};

template <class Visit>
void Text::for_runs(ByteRange range, Visit visit) const {
  size_t position = range.begin;
  for (size_t i = first_mark_ending_after(position); i < marks_.size() && position < range.end; ++i) {
    const size_t begin = std::min(std::max(marks_[i].begin, position), range.end);
    const size_t end = std::min(marks_[i].end, range.end);
    if (position < begin) visit(ByteRange{position, begin}, false);
    if (begin < end) visit(ByteRange{begin, end}, true);
    position = std::max(begin, end);
  }
  if (position < range.end) visit(ByteRange{position, range.end}, false);
}

}  // namespace sluice::jinja

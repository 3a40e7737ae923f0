#include "jinja/values/text.h"

#include <algorithm>

namespace sluice::jinja {

size_t Text::first_mark_ending_after(size_t position) const {
  const auto found = std::upper_bound(marks_.begin(), marks_.end(), position,
                                      [](size_t at, const ByteRange& mark) { return at < mark.end; });
  return static_cast<size_t>(found - marks_.begin());
}

bool Text::marked_at(size_t position) const {
  const size_t index = first_mark_ending_after(position);
  return index < marks_.size() && marks_[index].begin <= position;
}

void Text::append(std::string_view bytes, bool user) {
  if (bytes.empty()) return;
  const size_t begin = bytes_.size();
  bytes_.append(bytes);
  if (!user) return;
  if (!marks_.empty() && marks_.back().end == begin) {
    marks_.back().end = bytes_.size();
  } else {
    marks_.push_back({begin, bytes_.size()});
  }
}

void Text::append(const Text& other, ByteRange range) {
  if (other.marks_.empty()) {
    append(std::string_view(other.bytes_).substr(range.begin, range.end - range.begin), false);
    return;
  }
  other.for_runs(range, [&](ByteRange run, bool user) {
    append(std::string_view(other.bytes_).substr(run.begin, run.end - run.begin), user);
  });
}

void TextBuilder::fill(size_t count, std::string_view unit) {
  if (unit.empty() || count == 0) return;
  if (count > budget_.limits().value_bytes / unit.size())
    raise_limit("bytes of values", budget_.limits().value_bytes);
  grow(count * unit.size());
  for (size_t i = 0; i < count; ++i) text_.append(unit, false);
}

}  // namespace sluice::jinja

#include "jinja/values/strings.h"

#include <algorithm>

#include "jinja/values/unicode.h"

namespace sluice::jinja {

namespace {

std::u32string map_case(char32_t value, Case wanted, bool starts_word, bool first) {
  switch (wanted) {
    case Case::Upper:
      return to_upper(value);
    case Case::Lower:
      return to_lower(value);
    case Case::Capitalize:
      return first ? to_upper(value) : to_lower(value);
    case Case::Title:
      return starts_word ? to_upper(value) : to_lower(value);
    case Case::Swap:
      return is_upper(value) ? to_lower(value) : to_upper(value);
  }
  return std::u32string(1, value);
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

char map_ascii(char c, Case wanted, bool starts_word, bool first) {
  if (!is_letter(c)) return c;
  const bool was_upper = c <= 'Z';
  const bool upper = wanted == Case::Upper || (wanted == Case::Capitalize && first) ||
                     (wanted == Case::Title && starts_word) || (wanted == Case::Swap && !was_upper);
  return upper == was_upper ? c : static_cast<char>(c ^ 0x20);
}

bool is_line_end(char32_t value) {
  return (value >= 0x0A && value <= 0x0D) || (value >= 0x1C && value <= 0x1E) || value == 0x85 ||
         value == 0x2028 || value == 0x2029;
}

}  // namespace

Value change_case(Runtime& runtime, const Text& text, Case wanted) {
  TextBuilder out(runtime.budget());
  bool in_word = false;
  const std::string_view bytes = text.view();
  text.for_runs({0, text.size()}, [&](ByteRange run, bool user) {
    std::string piece;
    for (size_t i = run.begin; i < run.end;) {
      const CodePoint point = decode_at(bytes, i);
      if (point.value < 0x80) {
        piece.push_back(map_ascii(bytes[i], wanted, !in_word, i == 0));
      } else if (point.length == 1) {  // not valid UTF-8: stays
        piece.push_back(bytes[i]);
      } else {
        for (const char32_t mapped : map_case(point.value, wanted, !in_word, i == 0)) encode(mapped, piece);
      }
      in_word = point.value < 0x80 ? is_letter(bytes[i]) : is_upper(point.value) || is_lower(point.value);
      i += point.length;
    }
    out.add(piece, user);
  });
  return runtime.heap().string(out.take());
}

Value cut(Runtime& runtime, const Text& text, ByteRange range) {
  TextBuilder out(runtime.budget());
  out.add(text, range);
  return runtime.heap().string(out.take());
}

Value strip(Runtime& runtime, const Text& text, const Text* characters, Sides sides) {
  ByteRange range{0, text.size()};
  const std::string_view bytes = text.view();
  if (characters == nullptr) return cut(runtime, text, strip_space(bytes, range, sides));
  const auto listed = [&](ByteRange at) {
    return find_bytes(characters->view(), bytes.substr(at.begin, at.end - at.begin), 0) !=
           std::string_view::npos;
  };
  while (sides.left && range.begin < range.end) {
    const size_t end = range.begin + decode_at(bytes, range.begin).length;
    if (!listed({range.begin, end})) break;
    range.begin = end;
  }
  while (sides.right && range.begin < range.end) {
    const size_t start = previous_start(bytes, range.end);
    if (!listed({start, range.end})) break;
    range.end = start;
  }
  runtime.budget().step((text.size() - (range.end - range.begin)) * characters->size() / 256);
  return cut(runtime, text, range);
}

Value replace(Runtime& runtime, const Text& text, const Text& old_text, const Text& new_text, int64_t count) {
  TextBuilder out(runtime.budget());
  const std::string_view bytes = text.view();
  size_t position = 0;
  for (; count != 0; --count) {
    const size_t found = find_bytes(bytes, old_text.view(), position);
    if (found == std::string_view::npos) break;
    out.add(text, {position, found});
    out.add(new_text);
    position = found + old_text.size();
    if (!old_text.empty()) continue;
    if (position == bytes.size()) return runtime.heap().string(out.take());
    const size_t next = position + decode_at(bytes, position).length;
    out.add(text, {position, next});
    position = next;
  }
  out.add(text, {position, bytes.size()});
  return runtime.heap().string(out.take());
}

std::vector<ByteRange> split(Runtime& runtime, const Text& text, const Text* separator, int64_t most) {
  std::vector<ByteRange> pieces;
  const std::string_view bytes = text.view();
  size_t position = 0;
  if (separator != nullptr) {
    if (separator->empty()) raise("empty separator");
    for (; most != 0; --most) {
      const size_t found = find_bytes(bytes, separator->view(), position);
      if (found == std::string_view::npos) break;
      pieces.push_back({position, found});
      position = found + separator->size();
    }
    pieces.push_back({position, bytes.size()});
  } else {
    while (true) {
      position = strip_space(bytes, {position, bytes.size()}, {true, false}).begin;
      if (position == bytes.size()) break;
      size_t end = position;
      while (most != 0 && end < bytes.size() && !is_space(decode_at(bytes, end).value))
        end += decode_at(bytes, end).length;
      if (most-- == 0) end = bytes.size();
      pieces.push_back({position, end});
      position = end;
    }
  }
  runtime.budget().step(pieces.size() / 16);
  return pieces;
}

std::vector<ByteRange> split_lines(const Text& text, bool keep_ends) {
  std::vector<ByteRange> lines;
  const std::string_view bytes = text.view();
  size_t begin = 0;
  for (size_t i = 0; i < bytes.size();) {
    const CodePoint point = decode_at(bytes, i);
    size_t next = i + point.length;
    if (is_line_end(point.value)) {
      if (point.value == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      lines.push_back({begin, keep_ends ? next : i});
      begin = next;
    }
    i = next;
  }
  if (begin < bytes.size()) lines.push_back({begin, bytes.size()});
  return lines;
}

Value join(Runtime& runtime, const Text& separator, const std::vector<Value>& items) {
  TextBuilder out(runtime.budget());
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.add(separator);
    print(runtime, items[i], out);
  }
  return runtime.heap().string(out.take());
}

Value align(Runtime& runtime, const Text& text, Alignment alignment, int64_t width, std::string_view fill) {
  const auto length = static_cast<int64_t>(count_code_points(text.view()));
  const auto missing = static_cast<size_t>(std::max<int64_t>(std::max<int64_t>(width, 0) - length, 0));
  // Python puts the odd one left only where the width is odd.
  const size_t middle = missing / 2 + (missing & static_cast<size_t>(width) & 1);
  const size_t left = alignment == Alignment::Left ? 0 : alignment == Alignment::Right ? missing : middle;
  TextBuilder out(runtime.budget());
  out.fill(left, fill);
  out.add(text);
  out.fill(missing - left, fill);
  return runtime.heap().string(out.take());
}

}  // namespace sluice::jinja

#include <fmt/format.h>

#include <algorithm>

#include "jinja/values/operators.h"
#include "jinja/values/strings.h"
#include "jinja/values/unicode.h"

namespace sluice::jinja {

namespace {

template <Case wanted>
Value method_case(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "case", {});
  return change_case(runtime, self.text(), wanted);
}

template <bool left, bool right>
Value method_strip(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "strip", {"chars"});
  const bool given = bound.find(0) != nullptr && !bound.at(0).is_none();
  return strip(runtime, self.text(), given ? &bound.text(0) : nullptr, {left, right});
}

Value pieces_of(Runtime& runtime, const Text& text, const std::vector<ByteRange>& ranges) {
  std::vector<Value> pieces;
  for (const ByteRange& range : ranges) pieces.push_back(cut(runtime, text, range));
  return runtime.heap().list(std::move(pieces));
}

const Text* separator_of(const Bound& bound) {
  return bound.find(0) == nullptr || bound.at(0).is_none() ? nullptr : &bound.text(0);
}

Value method_split(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "split", {"sep", "maxsplit"});
  return pieces_of(runtime, self.text(),
                   split(runtime, self.text(), separator_of(bound), bound.integer(1, -1)));
}

// Splits from the end: of all pieces, the first ones stay together.
Value method_rsplit(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "rsplit", {"sep", "maxsplit"});
  const Text* separator = separator_of(bound);
  std::vector<ByteRange> ranges = split(runtime, self.text(), separator, -1);
  const int64_t most = bound.integer(1, -1);
  if (most >= 0 && ranges.size() > static_cast<size_t>(most) + 1) {
    const size_t together = ranges.size() - static_cast<size_t>(most);
    const size_t begin = separator == nullptr ? 0 : ranges[0].begin;
    ranges[together - 1].begin = begin;
    ranges.erase(ranges.begin(), ranges.begin() + static_cast<std::ptrdiff_t>(together - 1));
  }
  return pieces_of(runtime, self.text(), ranges);
}

Value method_splitlines(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "splitlines", {"keepends"});
  return pieces_of(runtime, self.text(), split_lines(self.text(), bound.flag(0, false)));
}

// The part of the text that start and end (in code points) select.
ByteRange selected(const Text& text, const Bound& bound, size_t first) {
  const auto length = static_cast<int64_t>(count_code_points(text.view()));
  const auto clamp = [&](int64_t at) {
    return static_cast<size_t>(std::min(std::max<int64_t>(at < 0 ? at + length : at, 0), length));
  };
  const size_t begin = clamp(bound.integer(first, 0));
  const size_t end = clamp(bound.integer(first + 1, length));
  return {byte_position(text.view(), begin), byte_position(text.view(), end)};
}

template <bool at_end>
Value method_affix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, at_end ? "endswith" : "startswith", {"affix", "start", "end"});
  const ByteRange range = selected(self.text(), bound, 1);
  const std::string_view part = range.begin > range.end
                                    ? std::string_view()
                                    : self.text().view().substr(range.begin, range.end - range.begin);
  const auto matches = [&](const Value& affix) {
    require_defined(affix);
    if (!affix.is_string()) raise(fmt::format("an affix must be a string, not '{}'", type_name(affix)));
    return at_end ? part.ends_with(affix.bytes()) : part.starts_with(affix.bytes());
  };
  const Value& wanted = bound.at(0);
  if (!wanted.is_list() || wanted.list().kind != ListKind::Tuple) return Value(matches(wanted));
  runtime.budget().step(wanted.list().items.size());
  return Value(std::any_of(wanted.list().items.begin(), wanted.list().items.end(), matches));
}

Value method_replace(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "replace", {"old", "new", "count"});
  return replace(runtime, self.text(), bound.text(0), bound.text(1), bound.integer(2, -1));
}

Value method_join(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "join", {"iterable"});
  const std::vector<Value> items = items_of(runtime.heap(), bound.at(0));
  for (const Value& item : items) {
    if (!item.is_string()) raise(fmt::format("join() needs strings, found '{}'", type_name(item)));
  }
  return join(runtime, self.text(), items);
}

enum class Missing : uint8_t { MinusOne, Fails };

template <bool backwards, Missing missing>
Value method_find(Runtime&, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "find", {"sub", "start", "end"});
  const std::string_view needle = bound.text(0).view();
  const ByteRange range = selected(self.text(), bound, 1);
  const std::string_view bytes = self.text().view().substr(0, range.end);
  size_t found = std::string_view::npos;
  for (size_t at = find_bytes(bytes, needle, range.begin); at != std::string_view::npos;
       at = find_bytes(bytes, needle, at + 1)) {
    found = at;
    if (!backwards) break;
  }
  if (found != std::string_view::npos)
    return Value(static_cast<int64_t>(count_code_points(bytes.substr(0, found))));
  if (missing == Missing::Fails) raise("substring not found");
  return Value(int64_t{-1});
}

Value method_count(Runtime&, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "count", {"sub", "start", "end"});
  const std::string_view needle = bound.text(0).view();
  const ByteRange range = selected(self.text(), bound, 1);
  if (range.begin > range.end) return Value(int64_t{0});
  const std::string_view bytes = self.text().view().substr(range.begin, range.end - range.begin);
  if (needle.empty()) return Value(static_cast<int64_t>(count_code_points(bytes)) + 1);
  int64_t count = 0;
  for (size_t at = find_bytes(bytes, needle, 0); at != std::string_view::npos;
       at = find_bytes(bytes, needle, at + needle.size())) {
    ++count;
  }
  return Value(count);
}

Value method_format(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return format_braces(runtime, self.text(), arguments);
}

template <bool last>
Value method_partition(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "partition", {"sep"});
  const Text& text = self.text();
  const Text& separator = bound.text(0);
  if (separator.empty()) raise("empty separator");
  const std::vector<ByteRange> pieces = split(runtime, text, &separator, last ? -1 : 1);
  const ByteRange none{text.size(), text.size()};
  if (pieces.size() == 1) {
    Value empty = cut(runtime, text, none);
    return runtime.heap().tuple(last ? std::vector<Value>{empty, empty, self}
                                     : std::vector<Value>{self, empty, empty});
  }
  const ByteRange tail = pieces.back();
  const ByteRange middle{tail.begin - separator.size(), tail.begin};
  return runtime.heap().tuple(
      {cut(runtime, text, {0, middle.begin}), cut(runtime, text, middle), cut(runtime, text, tail)});
}

Value method_removeprefix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "removeprefix", {"prefix"});
  const size_t size = bound.text(0).size();
  return self.bytes().starts_with(bound.text(0).bytes())
             ? cut(runtime, self.text(), {size, self.text().size()})
             : self;
}

Value method_removesuffix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "removesuffix", {"suffix"});
  const size_t size = bound.text(0).size();
  return self.bytes().ends_with(bound.text(0).bytes())
             ? cut(runtime, self.text(), {0, self.text().size() - size})
             : self;
}

Value method_zfill(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "zfill", {"width"});
  const Text& text = self.text();
  const size_t sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+') ? 1 : 0;
  const auto length = static_cast<int64_t>(count_code_points(text.view()));
  TextBuilder out(runtime.budget());
  out.add(text, {0, sign});
  out.fill(static_cast<size_t>(std::max<int64_t>(bound.integer(0, 0) - length, 0)), "0");
  out.add(text, {sign, text.size()});
  return runtime.heap().string(out.take());
}

template <Alignment alignment>
Value method_align(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "justify", {"width", "fillchar"});
  const int64_t width = require_integer(bound.at(0), "width");
  if (bound.find(1) == nullptr) return align(runtime, self.text(), alignment, width);
  if (count_code_points(bound.text(1).view()) != 1) raise("the fill must be one character");
  return align(runtime, self.text(), alignment, width, bound.text(1).view());
}

Value method_expandtabs(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "expandtabs", {"tabsize"});
  const int64_t size = std::max<int64_t>(bound.integer(0, 8), 0);
  TextBuilder out(runtime.budget());
  const Text& text = self.text();
  int64_t column = 0;
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = decode_at(text.view(), i);
    if (point.value == '\t') {
      const int64_t missing = size == 0 ? 0 : size - column % size;
      out.fill(static_cast<size_t>(missing), " ");
      column += missing;
    } else {
      out.add(text, {i, i + point.length});
      column = point.value == '\n' || point.value == '\r' ? 0 : column + 1;
    }
    i += point.length;
  }
  return runtime.heap().string(out.take());
}

bool is_alnum(char32_t value) {
  return is_alpha(value) || is_decimal(value);
}
bool is_ascii(char32_t value) {
  return value < 0x80;
}

template <bool (*predicate)(char32_t), bool empty_result>
Value method_all(Runtime&, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "is...", {});
  const Text& text = self.text();
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = decode_at(text.view(), i);
    if (!predicate(point.value)) return Value(false);
    i += point.length;
  }
  return Value(!text.empty() || empty_result);
}

template <const char* test>
Value method_test(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return Value(find_test(test)(runtime, self, arguments));
}

Value method_istitle(Runtime&, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "istitle", {});
  bool any = false;
  bool in_word = false;
  for (size_t i = 0; i < self.text().size();) {
    const CodePoint point = decode_at(self.text().view(), i);
    const bool upper = is_upper(point.value);
    const bool lower = is_lower(point.value);
    if ((upper && in_word) || (lower && !in_word)) return Value(false);
    in_word = upper || lower;
    any = any || in_word;
    i += point.length;
  }
  return Value(any);
}

Value method_isidentifier(Runtime&, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "isidentifier", {});
  for (size_t i = 0; i < self.text().size();) {
    const CodePoint point = decode_at(self.text().view(), i);
    const bool start = point.value == '_' || is_alpha(point.value);
    if (!start && (i == 0 || !is_decimal(point.value))) return Value(false);
    i += point.length;
  }
  return Value(!self.text().empty());
}

constexpr char kLower[] = "lower";
constexpr char kUpper[] = "upper";

constexpr NamedCall kMethods[] = {
    {"capitalize", method_case<Case::Capitalize>},
    {"casefold", method_case<Case::Lower>},
    {"center", method_align<Alignment::Center>},
    {"count", method_count},
    {"endswith", method_affix<true>},
    {"expandtabs", method_expandtabs},
    {"find", method_find<false, Missing::MinusOne>},
    {"format", method_format},
    {"index", method_find<false, Missing::Fails>},
    {"isalnum", method_all<is_alnum, false>},
    {"isalpha", method_all<is_alpha, false>},
    {"isascii", method_all<is_ascii, true>},
    {"isdecimal", method_all<is_decimal, false>},
    {"isdigit", method_all<is_decimal, false>},
    {"isidentifier", method_isidentifier},
    {"islower", method_test<kLower>},
    {"isnumeric", method_all<is_decimal, false>},
    {"isprintable", method_all<is_printable, true>},
    {"isspace", method_all<is_space, false>},
    {"istitle", method_istitle},
    {"isupper", method_test<kUpper>},
    {"join", method_join},
    {"ljust", method_align<Alignment::Left>},
    {"lower", method_case<Case::Lower>},
    {"lstrip", method_strip<true, false>},
    {"partition", method_partition<false>},
    {"removeprefix", method_removeprefix},
    {"removesuffix", method_removesuffix},
    {"replace", method_replace},
    {"rfind", method_find<true, Missing::MinusOne>},
    {"rindex", method_find<true, Missing::Fails>},
    {"rjust", method_align<Alignment::Right>},
    {"rpartition", method_partition<true>},
    {"rsplit", method_rsplit},
    {"rstrip", method_strip<false, true>},
    {"split", method_split},
    {"splitlines", method_splitlines},
    {"startswith", method_affix<false>},
    {"strip", method_strip<true, true>},
    {"swapcase", method_case<Case::Swap>},
    {"title", method_case<Case::Title>},
    {"upper", method_case<Case::Upper>},
    {"zfill", method_zfill},
};

}  // namespace

const NamedCall* find_string_method(std::string_view name) {
  const auto found =
      std::lower_bound(std::begin(kMethods), std::end(kMethods), name,
                       [](const NamedCall& method, std::string_view wanted) { return method.name < wanted; });
  return found != std::end(kMethods) && found->name == name ? found : nullptr;
}

}  // namespace sluice::jinja

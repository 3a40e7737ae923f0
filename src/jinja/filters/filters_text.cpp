#include <fmt/format.h>

#include <algorithm>

#include "jinja/filters/filters.h"
#include "jinja/values/json.h"
#include "jinja/values/operators.h"
#include "jinja/values/strings.h"
#include "jinja/values/unicode.h"

namespace sluice::jinja {

namespace {

Value as_markup(Runtime& runtime, Text text) {
  text.set_markup(true);
  return runtime.heap().string(std::move(text));
}

template <Case wanted>
Value filter_case(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "case", {});
  return change_case(runtime, runtime.str(input).text(), wanted);
}

// Unlike the method of that name, words begin after white space, dashes and opening brackets only.
Value filter_title(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "title", {});
  const Value string = runtime.str(input);
  const Text& text = string.text();
  TextBuilder out(runtime.budget());
  bool starts_word = true;
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = decode_at(text.view(), i);
    std::string piece;
    for (const char32_t mapped : starts_word ? to_upper(point.value) : to_lower(point.value))
      encode(mapped, piece);
    out.add(piece, text.marked_at(i));
    const bool opens = point.value < 0x80 && std::string_view("-({[<").find(static_cast<char>(point.value)) !=
                                                 std::string_view::npos;
    starts_word = opens || is_space(point.value);
    i += point.length;
  }
  return runtime.heap().string(out.take());
}

Value filter_trim(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "trim", {"chars"});
  const Value string = runtime.str(input);
  const bool given = bound.find(0) != nullptr && !bound.at(0).is_none();
  return strip(runtime, string.text(), given ? &bound.text(0) : nullptr, {});
}

Value filter_replace(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "replace", {"old", "new", "count"});
  const Value string = runtime.str(input);
  const Value old_text = runtime.str(bound.at(0));
  const Value new_text = runtime.str(bound.at(1));
  return replace(runtime, string.text(), old_text.text(), new_text.text(), bound.integer(2, -1));
}

Value filter_string(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "string", {});
  return runtime.str(input);
}

Value filter_safe(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "safe", {});
  return as_markup(runtime, runtime.str(input).text());
}

Value filter_escape(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "escape", {});
  const Value string = runtime.str(input);
  return string.text().markup() ? string : as_markup(runtime, escape_html(runtime, string.text()));
}

Value filter_forceescape(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "forceescape", {});
  return as_markup(runtime, escape_html(runtime, runtime.str(input).text()));
}

Value filter_format(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Value format = runtime.str(input);
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    raise("format takes positional or keyword arguments, not both");
  }
  if (arguments.named.empty()) {
    return format_percent(runtime, format.text(), runtime.heap().tuple(arguments.positional));
  }
  std::vector<Map::Entry> entries;
  for (const auto& [name, value] : arguments.named) entries.push_back({runtime.heap().string(name), value});
  return format_percent(runtime, format.text(), runtime.heap().map(std::move(entries)));
}

Value filter_center(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "center", {"width"});
  return align(runtime, runtime.str(input).text(), Alignment::Center, bound.integer(0, 80));
}

Value filter_indent(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "indent", {"width", "first", "blank"});
  require_defined(input);
  if (!input.is_string()) raise(fmt::format("indent needs a string, not '{}'", type_name(input)));
  TextBuilder indent(runtime.budget());
  if (bound.find(0) != nullptr && bound.at(0).is_string()) {
    indent.add(bound.text(0));
  } else {
    indent.fill(static_cast<size_t>(std::max<int64_t>(bound.integer(0, 4), 0)), " ");
  }
  const Text& text = input.text();
  Text with_newline = text;
  with_newline.append("\n", false);
  const std::vector<ByteRange> lines = split_lines(with_newline, false);
  TextBuilder out(runtime.budget());
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool is_blank = lines[i].begin == lines[i].end;
    if (i > 0) out.add("\n");
    if (i == 0 ? bound.flag(1, false) : !is_blank || bound.flag(2, false)) out.add(indent.text());
    out.add(with_newline, lines[i]);
  }
  return runtime.heap().string(out.take());
}

Value filter_truncate(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "truncate", {"length", "killwords", "end", "leeway"});
  const Value string = runtime.str(input);
  const Text& text = string.text();
  const Text end = bound.find(2) == nullptr ? Text("...") : bound.text(2);
  const int64_t length = bound.integer(0, 255);
  const auto end_length = static_cast<int64_t>(count_code_points(end.view()));
  if (length < end_length)
    raise(fmt::format("length {} of truncate is below that of its end, {}", length, end_length));
  if (static_cast<int64_t>(count_code_points(text.view())) - length <= bound.integer(3, 5)) return string;
  size_t stop = byte_position(text.view(), static_cast<size_t>(length - end_length));
  if (!bound.flag(1, false)) {
    const size_t space = text.view().substr(0, stop).rfind(' ');
    if (space != std::string_view::npos) stop = space;
  }
  TextBuilder out(runtime.budget());
  out.add(text, {0, stop});
  out.add(end);
  return runtime.heap().string(out.take());
}

Value filter_wordcount(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "wordcount", {});
  const Value string = runtime.str(input);
  int64_t words = 0;
  bool in_word = false;
  for (size_t i = 0; i < string.text().size();) {
    const CodePoint point = decode_at(string.text().view(), i);
    const bool is_word = point.value == '_' || is_alpha(point.value) || is_decimal(point.value);
    words += is_word && !in_word ? 1 : 0;
    in_word = is_word;
    i += point.length;
  }
  return Value(words);
}

void add_url_quoted(TextBuilder& out, const Text& text, bool in_query) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text.bytes()[i];
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '-' || c == '_' || c == '.' || c == '~' || (c == '/' && !in_query);
    const std::string quoted = plain                  ? std::string(1, c)
                               : c == ' ' && in_query ? "+"
                                                      : fmt::format("%{:02X}", static_cast<unsigned char>(c));
    out.add(quoted, text.marked_at(i));
  }
}

Value filter_urlencode(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "urlencode", {});
  TextBuilder out(runtime.budget());
  const bool is_pairs = input.is_map() || input.is_list();
  if (!is_pairs) {
    add_url_quoted(out, runtime.str(input).text(), false);
    return runtime.heap().string(out.take());
  }
  const Value pairs = input.is_map() ? runtime.call_method(input, "items", {}) : input;
  for (const Value& item : pairs.list().items) {
    const std::vector<Value> pair = items_of(runtime.heap(), item);
    if (pair.size() != 2) raise("urlencode needs pairs");
    if (out.size() > 0) out.add("&");
    add_url_quoted(out, runtime.str(pair[0]).text(), true);
    out.add("=");
    add_url_quoted(out, runtime.str(pair[1]).text(), true);
  }
  return runtime.heap().string(out.take());
}

Value filter_xmlattr(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "xmlattr", {"autospace"});
  require_defined(input);
  if (!input.is_map()) raise(fmt::format("xmlattr needs a mapping, not '{}'", type_name(input)));
  TextBuilder out(runtime.budget());
  for (const Map::Entry& entry : input.map().entries) {
    if (entry.value.is_none() || entry.value.is_undefined()) continue;
    const Value key = runtime.str(entry.key);
    if (key.bytes().find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      raise(fmt::format("invalid character in attribute name '{}'", key.bytes().substr(0, 40)));
    }
    if (out.size() > 0 || bound.flag(0, true)) out.add(" ");
    out.add(escape_html(runtime, key.text()));
    out.add("=\"");
    out.add(escape_html(runtime, runtime.str(entry.value).text()));
    out.add("\"");
  }
  return runtime.heap().string(out.take());
}

Value filter_striptags(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "striptags", {});
  const Value string = runtime.str(input);
  const Text& text = string.text();
  TextBuilder kept(runtime.budget());
  for (size_t i = 0; i < text.size();) {
    const bool comment = text.view().substr(i).starts_with("<!--");
    const size_t open = comment ? i : text.bytes().find('<', i);
    const size_t close =
        open == std::string::npos ? open : find_bytes(text.view(), comment ? "-->" : ">", open);
    const size_t end = close == std::string::npos ? text.size() : open;
    kept.add(text, {i, end});
    if (close == std::string::npos) break;
    i = close + (comment ? 3 : 1);
  }
  const std::vector<ByteRange> words = split(runtime, kept.text(), nullptr, -1);
  TextBuilder out(runtime.budget());
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out.add(" ");
    out.add(kept.text(), words[i]);
  }
  return runtime.heap().string(out.take());
}

constexpr NamedCall kTextFilters[] = {
    {"trim", filter_trim},
    {"tojson", filter_tojson},
    {"string", filter_string},
    {"replace", filter_replace},
    {"upper", filter_case<Case::Upper>},
    {"lower", filter_case<Case::Lower>},
    {"capitalize", filter_case<Case::Capitalize>},
    {"title", filter_title},
    {"indent", filter_indent},
    {"safe", filter_safe},
    {"escape", filter_escape},
    {"e", filter_escape},
    {"forceescape", filter_forceescape},
    {"format", filter_format},
    {"center", filter_center},
    {"truncate", filter_truncate},
    {"wordcount", filter_wordcount},
    {"urlencode", filter_urlencode},
    {"xmlattr", filter_xmlattr},
    {"striptags", filter_striptags},
};

}  // namespace

std::span<const NamedCall> text_filters() {
  return kTextFilters;
}

Text escape_html(Runtime& runtime, const Text& text) {
  TextBuilder out(runtime.budget());
  const std::string_view bytes = text.view();
  size_t position = 0;
  while (position < bytes.size()) {
    const size_t special = std::min(bytes.find_first_of("&<>'\"", position), bytes.size());
    out.add(text, {position, special});
    if (special == bytes.size()) break;
    const char c = bytes[special];
    const std::string_view name = c == '&'   ? "&amp;"
                                  : c == '<' ? "&lt;"
                                  : c == '>' ? "&gt;"
                                  : c == '"' ? "&#34;"
                                             : "&#39;";
    out.add(name, text.marked_at(special));
    position = special + 1;
  }
  return out.take();
}

}  // namespace sluice::jinja

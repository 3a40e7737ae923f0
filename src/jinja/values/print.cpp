#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "jinja/runtime.h"
#include "jinja/values/unicode.h"

namespace sluice::jinja {

namespace {

// Quotes and escapes as Python's repr of a str; every byte keeps the mark of the character it stands for.
void print_quoted(const Text& text, TextBuilder& out) {
  const std::string& bytes = text.bytes();
  const bool has_single = bytes.find('\'') != std::string::npos;
  const char quote = has_single && bytes.find('"') == std::string::npos ? '"' : '\'';
  out.add(std::string_view(&quote, 1));
  text.for_runs({0, text.size()}, [&](ByteRange run, bool user) {
    size_t plain = run.begin;  // start of what is copied as it is
    for (size_t i = run.begin; i < run.end;) {
      const CodePoint point = decode_at(bytes, i);
      const auto c = static_cast<char>(point.value);
      std::string escaped;
      if (point.value < 0x80 && (c == quote || c == '\\')) {
        escaped = {'\\', c};
      } else if (point.value == '\n' || point.value == '\r' || point.value == '\t') {
        escaped = point.value == '\n' ? "\\n" : point.value == '\r' ? "\\r" : "\\t";
      } else if (!is_printable(point.value)) {
        const auto code = static_cast<uint32_t>(point.value);
        escaped = code < 0x100     ? fmt::format("\\x{:02x}", code)
                  : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                   : fmt::format("\\U{:08x}", code);
      }
      if (!escaped.empty()) {
        out.add(std::string_view(bytes).substr(plain, i - plain), user);
        out.add(escaped, user);
        plain = i + point.length;
      }
      i += point.length;
    }
    if (plain < run.end) out.add(std::string_view(bytes).substr(plain, run.end - plain), user);
  });
  out.add(std::string_view(&quote, 1));
}

void print_range(const List& list, TextBuilder& out) {
  const std::vector<Value>& items = list.items;
  const int64_t first = items.empty() ? 0 : items[0].integer();
  const int64_t step = items.size() < 2 ? 1 : items[1].integer() - first;
  const int64_t stop = items.empty() ? 0 : items.back().integer() + (step > 0 ? 1 : -1);
  out.add(step == 1 ? fmt::format("range({}, {})", first, stop)
                    : fmt::format("range({}, {}, {})", first, stop, step));
}

void print_list(Runtime& runtime, const List& list, TextBuilder& out, size_t depth) {
  if (list.kind == ListKind::Range) return print_range(list, out);
  const bool is_tuple = list.is_tuple();
  if (list.is_view()) {
    out.add(list.kind == ListKind::Keys     ? "dict_keys("
            : list.kind == ListKind::Values ? "dict_values("
                                            : "dict_items(");
  }
  out.add(is_tuple ? "(" : "[");
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.add(", ");
    print_repr(runtime, list.items[i], out, depth + 1);
  }
  out.add(!is_tuple ? "]" : list.items.size() == 1 ? ",)" : ")");
  if (list.is_view()) out.add(")");
}

void print_map(Runtime& runtime, const Map& map, TextBuilder& out, size_t depth) {
  out.add("{");
  bool first = true;
  for (const Map::Entry& entry : map.entries) {
    if (!first) out.add(", ");
    first = false;
    print_repr(runtime, entry.key, out, depth + 1);
    out.add(": ");
    print_repr(runtime, entry.value, out, depth + 1);
  }
  out.add("}");
}

}  // namespace

// The shortest digits that read back as the same number, written as Python writes them.
std::string format_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto written = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view scientific(buffer, static_cast<size_t>(written.ptr - buffer));
  const size_t mark = scientific.find('e');
  int exponent = 0;
  const size_t digits_at = mark + (scientific[mark + 1] == '+' ? 2 : 1);
  std::from_chars(scientific.data() + digits_at, scientific.data() + scientific.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}e{}{:02}", scientific.substr(0, mark), exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  std::string out(buffer, fixed.ptr);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

void print(Runtime& runtime, const Value& value, TextBuilder& out, size_t depth) {
  if (value.is_string()) {
    out.add(value.text());
  } else if (!value.is_undefined()) {
    print_repr(runtime, value, out, depth);
  }
}

void print_repr(Runtime& runtime, const Value& value, TextBuilder& out, size_t depth) {
  if (depth > runtime.budget().limits().depth)
    raise_limit("nesting of values", runtime.budget().limits().depth);
  runtime.budget().step();
  if (value.is_undefined()) return out.add("Undefined");
  if (value.is_none()) return out.add("None");
  if (value.is_bool()) return out.add(value.boolean() ? "True" : "False");
  if (value.is_int()) return out.add(std::to_string(value.integer()));
  if (value.is_float()) return out.add(format_float(value.number()));
  if (value.is_list()) return print_list(runtime, value.list(), out, depth);
  if (value.is_map()) return print_map(runtime, value.map(), out, depth);
  if (value.is_string()) {
    runtime.budget().step_bytes(value.text().size());
    if (!value.text().markup()) return print_quoted(value.text(), out);
    out.add("Markup(");
    print_quoted(value.text(), out);
    return out.add(")");
  }
  const std::optional<Text> own = value.object().print(runtime, depth + 1);
  out.add(own ? *own : Text(fmt::format("<{}>", value.object().type_name())));
}

}  // namespace sluice::jinja

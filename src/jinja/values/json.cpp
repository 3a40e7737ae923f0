#include "jinja/values/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "jinja/values/unicode.h"

namespace sluice::jinja {

namespace {

std::string escape_code(char32_t value) {
  const auto code = static_cast<uint32_t>(value);
  if (code < 0x10000) return fmt::format("\\u{:04x}", code);
  const uint32_t pair = code - 0x10000;
  return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (pair >> 10), 0xDC00 + (pair & 0x3FF));
}

// The escape of a character, or empty where it is written as it is.
std::string json_escape(char32_t value, bool ascii) {
  switch (value) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      return value < 0x20 || (ascii && value > 0x7E) ? escape_code(value) : "";
  }
}

class JsonPrinter {
 public:
  JsonPrinter(Runtime& runtime, const JsonStyle& style, TextBuilder& out)
      : runtime_(runtime), style_(style), out_(out) {}

  // Containers are at most Limits::depth deep, which bounds the recursion.
  void print_value(const Value& value, size_t depth) {
    runtime_.budget().step();
    if (value.is_none()) return out_.add("null");
    if (value.is_bool()) return out_.add(value.boolean() ? "true" : "false");
    if (value.is_int()) return out_.add(std::to_string(value.integer()));
    if (value.is_float()) return out_.add(number(value.number()));
    if (value.is_string()) return print_string(value.text());
    if (value.is_map()) return print_map(value.map(), depth);
    if (value.is_list() && (value.list().kind == ListKind::List || value.list().is_tuple())) {
      return print_list(value.list(), depth);
    }
    raise(fmt::format("object of type {} is not JSON serializable", type_name(value)));
  }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return format_float(value);
  }

  void print_string(const Text& text) {
    const std::string_view bytes = text.view();
    runtime_.budget().step_bytes(bytes.size());
    out_.add("\"");
    text.for_runs({0, text.size()}, [&](ByteRange run, bool user) {
      size_t plain = run.begin;
      for (size_t i = run.begin; i < run.end;) {
        const CodePoint point = decode_at(bytes, i);
        const std::string escaped = json_escape(point.value, style_.ascii);
        if (!escaped.empty()) {
          out_.add(bytes.substr(plain, i - plain), user);
          out_.add(escaped, user);
          plain = i + point.length;
        }
        i += point.length;
      }
      if (plain < run.end) out_.add(bytes.substr(plain, run.end - plain), user);
    });
    out_.add("\"");
  }

  void new_line(size_t depth) {
    if (!style_.indent) return;
    out_.add("\n");
    for (size_t i = 0; i < depth; ++i) out_.add(*style_.indent);
  }

  void print_list(const List& list, size_t depth) {
    if (list.items.empty()) return out_.add("[]");
    out_.add("[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.add(style_.item_separator);
      new_line(depth + 1);
      print_value(list.items[i], depth + 1);
    }
    new_line(depth);
    out_.add("]");
  }

  void print_key(const Value& key) {
    if (key.is_string()) return print_string(key.text());
    out_.add("\"");
    print_value(key, 0);
    out_.add("\"");
  }

  void print_map(const Map& map, size_t depth) {
    if (map.entries.empty()) return out_.add("{}");
    std::vector<const Map::Entry*> entries;
    for (const Map::Entry& entry : map.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      for (size_t i = 1; i < entries.size(); ++i)
        compare(entries[i - 1]->key, entries[i]->key, runtime_.budget());
      std::stable_sort(entries.begin(), entries.end(), [&](const Map::Entry* a, const Map::Entry* b) {
        return compare(a->key, b->key, runtime_.budget()) < 0;
      });
    }
    out_.add("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.add(style_.item_separator);
      new_line(depth + 1);
      print_key(entries[i]->key);
      out_.add(style_.key_separator);
      print_value(entries[i]->value, depth + 1);
    }
    new_line(depth);
    out_.add("}");
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  TextBuilder& out_;
};

}  // namespace

void print_json(Runtime& runtime, const Value& value, const JsonStyle& style, TextBuilder& out) {
  JsonPrinter(runtime, style, out).print_value(value, 0);
}

Value filter_tojson(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = bound.flag(0, false);
  style.sort_keys = bound.flag(3, false);
  const Value indent = bound.get(1, Value());
  if (indent.is_string()) {
    style.indent = indent.text();
  } else if (!indent.is_none()) {
    TextBuilder spaces(runtime.budget());
    spaces.fill(static_cast<size_t>(std::max<int64_t>(require_integer(indent, "indent of tojson"), 0)), " ");
    style.indent = spaces.take();
  }
  style.item_separator = Text(style.indent ? "," : ", ");
  style.key_separator = Text(": ");
  const Value separators = bound.get(2, Value());
  if (!separators.is_none()) {
    const std::vector<Value> pair = items_of(runtime.heap(), separators);
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      raise("separators of tojson must be two strings");
    }
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  TextBuilder out(runtime.budget());
  print_json(runtime, input, style, out);
  return runtime.heap().string(out.take());
}

}  // namespace sluice::jinja

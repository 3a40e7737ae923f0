// str.format.
#include <fmt/format.h>

#include <algorithm>

#include "jinja/values/format.h"
#include "jinja/values/operators.h"
#include "jinja/values/unicode.h"

namespace sluice::jinja {

namespace {

// [[fill]align][sign][#][0][width][,][.precision][type]
FormatSpec parse_spec(std::string_view text) {
  FormatSpec spec;
  spec.type = '\0';
  size_t i = 0;
  const auto is_align = [&](size_t at) {
    return at < text.size() && std::string_view("<>=^").find(text[at]) != std::string_view::npos;
  };
  const size_t first = text.empty() ? 0 : decode_at(text, 0).length;
  if (!text.empty() && is_align(first)) {
    spec.fill = std::string(text.substr(0, first));
    spec.align = text[first];
    i = first + 1;
  } else if (is_align(0)) {
    spec.align = text[i++];
  }
  if (i < text.size() && std::string_view("+- ").find(text[i]) != std::string_view::npos)
    spec.sign = text[i++];
  if (i < text.size() && text[i] == '#') spec.alternate = ++i > 0;
  if (i < text.size() && text[i] == '0' && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
    ++i;
  }
  spec.width = read_number(text, i);
  if (i < text.size() && (text[i] == ',' || text[i] == '_')) spec.group = ++i > 0;
  if (i < text.size() && text[i] == '.') spec.precision = read_number(text, ++i);
  if (i < text.size()) spec.type = text[i++];
  if (i < text.size()) raise(fmt::format("invalid format specifier '{}'", text.substr(0, 40)));
  return spec;
}

void convert_brace(Runtime& runtime, FormatSpec spec, const Value& value, TextBuilder& out) {
  if (value.is_integral() && !value.is_bool() &&
      std::string_view("feEgGF%").find(spec.type) == std::string_view::npos) {
    if (spec.type == '\0' || spec.type == 'n') spec.type = 'd';
    return pad(out, Text(format_integer(value.integer(), spec)), spec, '>');
  }
  if (value.is_number() && spec.type != '\0' && spec.type != 's') {
    if (spec.type == 'd') return pad(out, Text(format_integer(to_integer(value), spec)), spec, '>');
    return pad(out, Text(format_number(to_number(value), spec)), spec, '>');
  }
  if (value.is_float() && spec.precision) {
    spec.type = 'g';
    return pad(out, Text(format_number(value.number(), spec)), spec, '>');
  }
  if (spec.type != '\0' && spec.type != 's')
    raise(fmt::format("unknown format code '{}' for '{}'", spec.type, type_name(value)));
  pad(out, cut_to(runtime.str(value).text(), spec.precision), spec,
      value.is_number() && !value.is_bool() ? '>' : '<');
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Text& format, const Arguments& arguments)
      : runtime_(runtime), format_(format), arguments_(arguments), out_(runtime.budget()) {}

  Value run() {
    const std::string_view bytes = format_.view();
    size_t i = 0;
    while (i < bytes.size()) {
      const size_t next = std::min(bytes.find_first_of("{}", i), bytes.size());
      out_.add(format_, {i, next});
      if (next == bytes.size()) break;
      if (next + 1 < bytes.size() && bytes[next + 1] == bytes[next]) {
        out_.add(format_, {next, next + 1});
        i = next + 2;
        continue;
      }
      const size_t close = bytes.find('}', next);
      if (bytes[next] == '}' || close == std::string_view::npos) raise("single brace in a format string");
      replace_field(bytes.substr(next + 1, close - next - 1));
      i = close + 1;
    }
    return runtime_.heap().string(out_.take());
  }

 private:
  Value first_part(std::string_view name) {
    const bool is_number = !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
    if (name.empty() || is_number) {
      size_t at = 0;
      const size_t index = name.empty() ? next_++ : static_cast<size_t>(read_number(name, at));
      if (index >= arguments_.positional.size())
        raise("replacement index out of range for positional arguments");
      return arguments_.positional[index];
    }
    for (const auto& [known, value] : arguments_.named) {
      if (known == name) return value;
    }
    raise(fmt::format("format() has no argument '{}'", name.substr(0, 40)));
  }

  Value look_up(std::string_view path) {
    size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = first_part(path.substr(0, end));
    while (end < path.size()) {
      const bool bracket = path[end] == '[';
      const size_t stop =
          bracket ? path.find(']', end) : std::min(path.find_first_of(".[", end + 1), path.size());
      if (stop == std::string_view::npos) raise("missing ']' in a format string");
      const std::string_view key = path.substr(end + 1, stop - end - 1);
      const bool is_index =
          bracket && !key.empty() && key.find_first_not_of("0123456789") == std::string_view::npos;
      size_t at = 0;
      value = is_index  ? runtime_.item(value, Value(read_number(key, at)))
              : bracket ? runtime_.item(value, runtime_.heap().string(key))
                        : runtime_.attribute(value, key);
      end = stop + (bracket ? 1 : 0);
    }
    return value;
  }

  void replace_field(std::string_view field) {
    const size_t colon = std::min(field.find(':'), field.size());
    std::string_view path = field.substr(0, colon);
    const FormatSpec spec = parse_spec(colon < field.size() ? field.substr(colon + 1) : std::string_view());
    const bool repr = path.ends_with("!r") || path.ends_with("!a");
    if (repr || path.ends_with("!s")) path.remove_suffix(2);
    const Value value = look_up(path);
    convert_brace(runtime_, spec, repr ? runtime_.heap().string(repr_of(runtime_, value)) : value, out_);
  }

  Runtime& runtime_;
  const Text& format_;
  const Arguments& arguments_;
  TextBuilder out_;
  size_t next_ = 0;
};

}  // namespace

Value format_braces(Runtime& runtime, const Text& format, const Arguments& arguments) {
  return BraceFormatter(runtime, format, arguments).run();
}

}  // namespace sluice::jinja

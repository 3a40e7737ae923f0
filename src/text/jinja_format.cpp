// printf-style formatting (`%` and the format filter) and str.format.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "text/jinja_operators.h"
#include "text/jinja_unicode.h"

namespace sluice::text::jinja {

namespace {

// What a conversion asks for; both notations come down to it.
struct Spec {
  char type = 's';
  char align = '\0';  // < > ^ = or none
  char sign = '-';    // + - or space
  bool alternate = false;
  bool group = false;  // thousands with commas
  std::string fill = " ";
  int64_t width = 0;
  std::optional<int64_t> precision;
};

constexpr int64_t kMostDigits = 4096;

int64_t read_number(std::string_view bytes, size_t& position) {
  int64_t value = 0;
  while (position < bytes.size() && bytes[position] >= '0' && bytes[position] <= '9') {
    value = value * 10 + (bytes[position++] - '0');
    if (value > (int64_t{1} << 31)) raise("a width or precision is too large");
  }
  return value;
}

void pad(TextBuilder& out, const Text& body, const Spec& spec, char default_align) {
  const auto length = static_cast<int64_t>(count_code_points(body.view()));
  const auto missing = static_cast<size_t>(std::max<int64_t>(spec.width - length, 0));
  const char align = spec.align == '\0' ? default_align : spec.align;
  if (align == '=') {
    const size_t sign =
        !body.empty() && std::string_view("+- ").find(body.bytes()[0]) != std::string_view::npos;
    out.add(body, {0, sign});
    out.fill(missing, spec.fill);
    out.add(body, {sign, body.size()});
    return;
  }
  const size_t left = align == '<' ? 0 : align == '>' ? missing : missing / 2;
  out.fill(left, spec.fill);
  out.add(body);
  out.fill(missing - left, spec.fill);
}

std::string with_sign(std::string digits, bool negative, char sign) {
  if (negative) return "-" + digits;
  return sign == '-' ? digits : std::string(1, sign) + digits;
}

void group_digits(std::string& digits) {
  size_t end = digits.find_first_not_of("0123456789");
  if (end == std::string::npos) end = digits.size();
  for (size_t i = end; i > 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
}

std::string format_integer(int64_t value, const Spec& spec) {
  const uint64_t magnitude =
      value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string digits;
  switch (spec.type) {
    case 'x':
      digits = fmt::format("{}{:x}", spec.alternate ? "0x" : "", magnitude);
      break;
    case 'X':
      digits = fmt::format("{}{:X}", spec.alternate ? "0X" : "", magnitude);
      break;
    case 'o':
      digits = fmt::format("{}{:o}", spec.alternate ? "0o" : "", magnitude);
      break;
    case 'b':
      digits = fmt::format("{}{:b}", spec.alternate ? "0b" : "", magnitude);
      break;
    default:
      digits = std::to_string(magnitude);
  }
  if (spec.group) group_digits(digits);
  return with_sign(std::move(digits), value < 0, spec.sign);
}

std::string format_number(double value, const Spec& spec) {
  const bool percent = spec.type == '%';
  const int64_t precision = spec.precision.value_or(6);
  if (precision > kMostDigits) raise_limit("digits of a number", static_cast<size_t>(kMostDigits));
  if (std::isnan(value) || std::isinf(value)) {
    return with_sign(std::isnan(value) ? "nan" : "inf", value < 0, spec.sign);
  }
  const char pattern[] = {'%',
                          spec.alternate ? '#' : '.',
                          spec.alternate ? '.' : '*',
                          spec.alternate ? '*' : (percent ? 'f' : spec.type),
                          spec.alternate ? (percent ? 'f' : spec.type) : '\0',
                          '\0'};
  const double magnitude = std::abs(percent ? value * 100 : value);
  std::string digits(static_cast<size_t>(precision) + 400, '\0');
  const int length =
      std::snprintf(digits.data(), digits.size(), pattern, static_cast<int>(precision), magnitude);
  digits.resize(static_cast<size_t>(length));
  if (spec.group) group_digits(digits);
  if (percent) digits += '%';
  return with_sign(std::move(digits), std::signbit(value), spec.sign);
}

Text cut_to(const Text& text, std::optional<int64_t> precision) {
  if (!precision) return text;
  Text cut;
  cut.append(text, {0, byte_position(text.view(), static_cast<size_t>(*precision))});
  return cut;
}

int64_t to_integer(const Value& value) {
  if (value.is_integral()) return value.integer();
  require_defined(value);
  if (!value.is_float()) raise(fmt::format("%d format: a number is required, not '{}'", type_name(value)));
  if (!(std::abs(value.number()) < 9.2e18)) raise("a float does not fit 64 bits");
  return static_cast<int64_t>(value.number());
}

double to_number(const Value& value) {
  require_defined(value);
  if (!value.is_number()) raise(fmt::format("must be a real number, not '{}'", type_name(value)));
  return value.number();
}

Text repr_of(Runtime& runtime, const Value& value) {
  TextBuilder out(runtime.budget());
  print_repr(runtime, value, out);
  return out.take();
}

// One conversion of the `%` notation.
void convert_percent(Runtime& runtime, const Spec& spec, const Value& value, TextBuilder& out) {
  constexpr std::string_view integers = "diuxXo";
  if (integers.find(spec.type) != std::string_view::npos) {
    std::string digits = format_integer(to_integer(value), spec);
    if (spec.precision) {
      const size_t sign = digits[0] == '-' || digits[0] == '+' || digits[0] == ' ' ? 1 : 0;
      if (*spec.precision > kMostDigits) raise_limit("digits of a number", static_cast<size_t>(kMostDigits));
      const auto wanted = static_cast<size_t>(*spec.precision);
      if (digits.size() - sign < wanted) digits.insert(sign, wanted - (digits.size() - sign), '0');
    }
    return pad(out, Text(digits), spec, '>');
  }
  switch (spec.type) {
    case 's':
      return pad(out, cut_to(runtime.str(value).text(), spec.precision), spec, '>');
    case 'r':
    case 'a':
      return pad(out, cut_to(repr_of(runtime, value), spec.precision), spec, '>');
    case 'c':
      if (value.is_string()) return pad(out, value.text(), spec, '>');
      return pad(out, Text(encode(static_cast<char32_t>(to_integer(value)) & 0x1FFFFF)), spec, '>');
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
      return pad(out, Text(format_number(to_number(value), spec)), spec, '>');
    default:
      raise(fmt::format("unsupported format character '{}'", spec.type));
  }
}

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Text& format, const Value& right)
      : runtime_(runtime), format_(format), right_(right), out_(runtime.budget()) {
    is_tuple_ = right.is_list() && right.list().kind == ListKind::Tuple;
  }

  Value run() {
    const std::string_view bytes = format_.view();
    while (position_ < bytes.size()) {
      const size_t next = std::min(bytes.find('%', position_), bytes.size());
      out_.add(format_, {position_, next});
      position_ = next;
      if (position_ < bytes.size()) convert();
    }
    const size_t wanted = is_tuple_                             ? right_.list().items.size()
                          : right_.is_map() || right_.is_list() ? used_
                                                                : 1;
    if (used_ < wanted) raise("not all arguments converted during string formatting");
    return runtime_.heap().string(out_.take());
  }

 private:
  char peek() const {
    if (position_ >= format_.size()) raise("incomplete format");
    return format_.bytes()[position_];
  }

  Value next_argument() {
    if (is_tuple_) {
      if (used_ >= right_.list().items.size()) raise("not enough arguments for format string");
      return right_.list().items[used_++];
    }
    if (used_++ > 0) raise("not enough arguments for format string");
    return right_;
  }

  Value keyed_argument() {
    const size_t close = format_.bytes().find(')', position_);
    if (close == std::string::npos) raise("incomplete format key");
    if (!right_.is_map()) raise("format requires a mapping");
    const std::string_view key = format_.view().substr(position_ + 1, close - position_ - 1);
    const Value* found = right_.map().find(key);
    if (found == nullptr) raise(fmt::format("the format names '{}', which is not there", key.substr(0, 40)));
    position_ = close + 1;
    return *found;
  }

  int64_t number_or_star() {
    if (peek() != '*') return read_number(format_.view(), position_);
    ++position_;
    return require_integer(next_argument(), "a width");
  }

  void read_flags(Spec& spec) {
    for (; std::string_view("-+ #0").find(peek()) != std::string_view::npos; ++position_) {
      const char flag = peek();
      if (flag == '-') spec.align = '<';
      if (flag == '+' || (flag == ' ' && spec.sign == '-')) spec.sign = flag;
      if (flag == '#') spec.alternate = true;
      if (flag == '0' && spec.align == '\0') spec.align = '0';
    }
  }

  void convert() {
    ++position_;
    Spec spec;
    std::optional<Value> keyed;
    if (peek() == '(') keyed = keyed_argument();
    read_flags(spec);
    spec.width = number_or_star();
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -std::max<int64_t>(spec.width, -(int64_t{1} << 31));
    }
    if (peek() == '.') {
      ++position_;
      spec.precision = std::max<int64_t>(number_or_star(), 0);
    }
    while (std::string_view("hlL").find(peek()) != std::string_view::npos) ++position_;
    spec.type = peek();
    ++position_;
    if (spec.type == '%') return out_.add("%");
    const bool zeros =
        spec.align == '0' && std::string_view("srac").find(spec.type) == std::string_view::npos;
    if (zeros) spec.fill = "0";
    if (spec.align == '0') spec.align = zeros ? '=' : '\0';
    convert_percent(runtime_, spec, keyed ? *keyed : next_argument(), out_);
  }

  Runtime& runtime_;
  const Text& format_;
  const Value& right_;
  TextBuilder out_;
  bool is_tuple_ = false;
  size_t position_ = 0;
  size_t used_ = 0;
};

// [[fill]align][sign][#][0][width][,][.precision][type]
Spec parse_spec(std::string_view text) {
  Spec spec;
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

void convert_brace(Runtime& runtime, Spec spec, const Value& value, TextBuilder& out) {
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
    const Spec spec = parse_spec(colon < field.size() ? field.substr(colon + 1) : std::string_view());
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

Value format_percent(Runtime& runtime, const Text& format, const Value& right) {
  return PercentFormatter(runtime, format, right).run();
}

Value format_braces(Runtime& runtime, const Text& format, const Arguments& arguments) {
  return BraceFormatter(runtime, format, arguments).run();
}

}  // namespace sluice::text::jinja

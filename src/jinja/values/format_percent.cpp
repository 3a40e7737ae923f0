// printf-style formatting: the `%` operator and the format filter.
#include <fmt/format.h>

#include <algorithm>

#include "jinja/values/format.h"
#include "jinja/values/operators.h"
#include "jinja/values/unicode.h"

namespace sluice::jinja {

namespace {

// One conversion of the `%` notation.
void convert_percent(Runtime& runtime, const FormatSpec& spec, const Value& value, TextBuilder& out) {
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

  void read_flags(FormatSpec& spec) {
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
    FormatSpec spec;
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

}  // namespace

Value format_percent(Runtime& runtime, const Text& format, const Value& right) {
  return PercentFormatter(runtime, format, right).run();
}

}  // namespace sluice::jinja

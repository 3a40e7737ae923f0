#include "jinja/values/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "jinja/values/unicode.h"

namespace sluice::jinja {

namespace {

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

}  // namespace

int64_t read_number(std::string_view bytes, size_t& position) {
  int64_t value = 0;
  while (position < bytes.size() && bytes[position] >= '0' && bytes[position] <= '9') {
    value = value * 10 + (bytes[position++] - '0');
    if (value > (int64_t{1} << 31)) raise("a width or precision is too large");
  }
  return value;
}

void pad(TextBuilder& out, const Text& body, const FormatSpec& spec, char default_align) {
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

std::string format_integer(int64_t value, const FormatSpec& spec) {
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

std::string format_number(double value, const FormatSpec& spec) {
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

}  // namespace sluice::jinja

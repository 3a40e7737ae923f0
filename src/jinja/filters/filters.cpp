#include "jinja/filters/filters.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "jinja/values/operators.h"
#include "jinja/values/strings.h"
#include "jinja/values/unicode.h"

namespace sluice::jinja {

namespace {

std::string_view trimmed(const Value& value) {
  const ByteRange range = strip_space(value.bytes(), {0, value.bytes().size()});
  return value.text().view().substr(range.begin, range.end - range.begin);
}

std::optional<double> parse_number(std::string_view text) {
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<int64_t> parse_whole(std::string_view text, int base) {
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const std::string_view prefix = base == 16 ? "xX" : base == 8 ? "oO" : base == 2 ? "bB" : "";
  if (text.size() > 2 && text[0] == '0' && prefix.find(text[1]) != std::string_view::npos)
    text.remove_prefix(2);
  std::string digits;
  for (const char c : text) {
    if (c != '_') digits.push_back(c);
  }
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::nullopt;
  if (negative) digits.insert(digits.begin(), '-');
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  if (error == std::errc::result_out_of_range) raise("integer does not fit 64 bits");
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

std::optional<int64_t> truncate_number(double number) {
  if (std::isnan(number) || std::isinf(number)) return std::nullopt;
  if (!(std::abs(number) < 9.2e18)) raise("integer does not fit 64 bits");
  return static_cast<int64_t>(number);
}

Value filter_int(Runtime&, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "int", {"default", "base"});
  require_defined(input);
  const int64_t base = bound.integer(1, 10);
  if (base < 2 || base > 36) raise(fmt::format("base {} of int must be from 2 to 36", base));
  std::optional<int64_t> number;
  if (input.is_integral()) {
    number = input.integer();
  } else if (input.is_float()) {
    number = truncate_number(input.number());
  } else if (input.is_string()) {
    number = parse_whole(trimmed(input), static_cast<int>(base));
    const std::optional<double> real = number ? std::nullopt : parse_number(trimmed(input));
    if (real) number = truncate_number(*real);
  }
  return number ? Value(*number) : bound.get(0, Value(int64_t{0}));
}

Value filter_float(Runtime&, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "float", {"default"});
  require_defined(input);
  if (input.is_number()) return Value(input.number());
  const std::optional<double> number = input.is_string() ? parse_number(trimmed(input)) : std::nullopt;
  return number ? Value(*number) : bound.get(0, Value(0.0));
}

Value filter_abs(Runtime&, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "abs", {});
  require_defined(input);
  if (!input.is_number()) raise(fmt::format("bad operand type for abs(): '{}'", type_name(input)));
  if (input.is_float()) return Value(std::abs(input.number()));
  return input.integer() < 0 ? unary(UnaryOperator::Negate, input) : Value(input.integer());
}

// To the nearest, ties to even, as decimal digits say it.
double round_decimal(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 300) return value;
  if (precision < -300) return 0;
  if (precision < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / scale) * scale;
  }
  const std::string digits = fmt::format("{:.{}f}", value, static_cast<int>(precision));
  double rounded = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), rounded);
  return rounded;
}

Value filter_round(Runtime&, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "round", {"precision", "method"});
  require_defined(input);
  if (!input.is_number()) raise(fmt::format("type '{}' cannot be rounded", type_name(input)));
  const int64_t precision = bound.integer(0, 0);
  const std::string method = bound.find(1) == nullptr ? "common" : bound.text(1).bytes();
  if (method == "common") {
    if (input.is_integral() && precision >= 0) return Value(input.integer());
    const double rounded = round_decimal(input.number(), precision);
    return input.is_integral() ? Value(static_cast<int64_t>(rounded)) : Value(rounded);
  }
  if (method != "ceil" && method != "floor") raise("method of round must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.number() * scale;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value filter_filesizeformat(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "filesizeformat", {"binary"});
  static constexpr std::string_view letters = "kMGTPEZY";
  const double bytes = filter_float(runtime, input, {}).number();
  const bool binary = bound.flag(0, false);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return runtime.heap().string("1 Byte");
  if (bytes < base) return runtime.heap().string(fmt::format("{:.0f} Bytes", std::trunc(bytes)));
  double unit = base * base;
  size_t i = 0;
  for (; i + 1 < letters.size() && bytes >= unit; ++i) unit *= base;
  const char letter = binary && i == 0 ? 'K' : letters[i];
  return runtime.heap().string(fmt::format("{:.1f} {}{}", base * bytes / unit, letter, binary ? "iB" : "B"));
}

Value filter_default(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "default", {"default_value", "boolean"});
  const bool replaced = input.is_undefined() || (bound.flag(1, false) && !is_true(input));
  return replaced ? bound.get(0, runtime.heap().string("")) : input;
}

Value filter_attr(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "attr", {"name"});
  const std::string& name = bound.text(0).bytes();
  const bool is_item = input.is_map() && find_map_method(name) == nullptr && !is_mutating_method(input, name);
  if (is_item) return runtime.heap().undefined(fmt::format("'dict object' has no attribute '{}'", name));
  return runtime.attribute(input, name);
}

constexpr NamedCall kNumberFilters[] = {
    {"int", filter_int},         {"float", filter_float},
    {"abs", filter_abs},         {"round", filter_round},
    {"default", filter_default}, {"d", filter_default},
    {"attr", filter_attr},       {"filesizeformat", filter_filesizeformat},
};

}  // namespace

std::span<const NamedCall> number_filters() {
  return kNumberFilters;
}

const NamedCall* find_filter(std::string_view name) {
  for (const auto group : {text_filters(), select_filters(), sequence_filters(), number_filters()}) {
    for (const NamedCall& filter : group) {
      if (filter.name == name) return &filter;
    }
  }
  return nullptr;
}

Value follow_path(Runtime& runtime, const Value& item, const Value& path, const Value* fallback) {
  if (path.is_none()) return item;
  const auto step = [&](const Value& object, const Value& key) {
    Value found = runtime.item(object, key);
    return found.is_undefined() && fallback != nullptr ? *fallback : found;
  };
  if (!path.is_string()) return step(item, path);
  Value value = item;
  const Text dot(".");
  for (const ByteRange& range : split(runtime, path.text(), &dot, -1)) {
    const std::string_view part = path.text().view().substr(range.begin, range.end - range.begin);
    const bool is_index = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    const std::optional<int64_t> index = is_index ? parse_whole(part, 10) : std::nullopt;
    value = step(value, index ? Value(*index) : runtime.heap().string(part));
  }
  return value;
}

Value ignore_case(Runtime& runtime, const Value& value) {
  return value.is_string() ? change_case(runtime, value.text(), Case::Lower) : value;
}

}  // namespace sluice::jinja

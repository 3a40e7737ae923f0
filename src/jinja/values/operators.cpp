#include "jinja/values/operators.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <cmath>

#include "jinja/values/unicode.h"

namespace sluice::jinja {

namespace {

[[noreturn]] void unsupported(std::string_view op, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  raise(fmt::format("unsupported operand types for {}: '{}' and '{}'", op, type_name(a), type_name(b)));
}

[[noreturn]] void overflow() {
  raise("integer result does not fit 64 bits");
}

Value repeat(Runtime& runtime, const Value& sequence, int64_t count) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  Budget& budget = runtime.budget();
  if (sequence.is_string()) {
    const Text& text = sequence.text();
    if (!text.empty() && times > budget.limits().value_bytes / text.size()) {
      raise_limit("bytes of values", budget.limits().value_bytes);
    }
    budget.require(times * text.size());
    TextBuilder out(budget);
    for (size_t i = 0; i < times && !text.empty(); ++i) out.add(text);
    return runtime.heap().string(out.take());
  }
  const List& list = sequence.list();
  const size_t length = list.items.size();
  if (length > 0 && times > budget.limits().value_bytes / sizeof(Value) / length) {
    raise_limit("bytes of values", budget.limits().value_bytes);
  }
  budget.require(length * times * sizeof(Value));
  std::vector<Value> items;
  for (size_t i = 0; i < times && length > 0; ++i)
    items.insert(items.end(), list.items.begin(), list.items.end());
  return runtime.heap().list(std::move(items), list.kind);
}

bool is_repeatable(const Value& value) {
  return value.is_string() ||
         (value.is_list() && (value.list().kind == ListKind::List || value.list().kind == ListKind::Tuple));
}

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient - static_cast<int64_t>(a % b != 0 && (a < 0) != (b < 0));
}

double float_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return Value(result);
}

Value integer_arithmetic(ArithmeticOperator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case ArithmeticOperator::Add:
      if (__builtin_add_overflow(a, b, &result)) overflow();
      return Value(result);
    case ArithmeticOperator::Subtract:
      if (__builtin_sub_overflow(a, b, &result)) overflow();
      return Value(result);
    case ArithmeticOperator::Multiply:
      if (__builtin_mul_overflow(a, b, &result)) overflow();
      return Value(result);
    case ArithmeticOperator::Divide:
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case ArithmeticOperator::Power:
      if (b < 0) return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
      return integer_power(a, b);
    case ArithmeticOperator::FloorDivide:
    case ArithmeticOperator::Modulo:
      break;
  }
  if (b == -1)
    return op == ArithmeticOperator::Modulo ? Value(int64_t{0})
                                            : integer_arithmetic(ArithmeticOperator::Subtract, 0, a);
  const int64_t quotient = floor_divide(a, b);
  return Value(op == ArithmeticOperator::Modulo ? a - quotient * b : quotient);
}

Value float_arithmetic(ArithmeticOperator op, double a, double b) {
  switch (op) {
    case ArithmeticOperator::Add:
      return Value(a + b);
    case ArithmeticOperator::Subtract:
      return Value(a - b);
    case ArithmeticOperator::Multiply:
      return Value(a * b);
    case ArithmeticOperator::Divide:
      return Value(a / b);
    case ArithmeticOperator::FloorDivide:
      return Value(std::floor(a / b));
    case ArithmeticOperator::Modulo:
      return Value(float_modulo(a, b));
    case ArithmeticOperator::Power:
      return Value(std::pow(a, b));
  }
  return Value();
}

Value number_arithmetic(ArithmeticOperator op, const Value& a, const Value& b) {
  const bool divides = op == ArithmeticOperator::Divide || op == ArithmeticOperator::FloorDivide ||
                       op == ArithmeticOperator::Modulo;
  if (divides && b.number() == 0) raise("division by zero");
  if (a.is_integral() && b.is_integral()) {
    if (op == ArithmeticOperator::Power && a.integer() == 0 && b.integer() < 0) raise("division by zero");
    return integer_arithmetic(op, a.integer(), b.integer());
  }
  return float_arithmetic(op, a.number(), b.number());
}

std::string_view symbol_of(ArithmeticOperator op) {
  constexpr std::string_view symbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return symbols[static_cast<size_t>(op)];
}

// Positions that a slice visits, as first position, step and count.
struct Walk {
  int64_t first = 0;
  int64_t step = 1;
  int64_t count = 0;
};

Walk walk_of(const Slice& bounds, int64_t length) {
  const bool forward = bounds.step > 0;
  const auto clamp = [&](std::optional<int64_t> bound, int64_t fallback) {
    if (!bound) return fallback;
    const int64_t low = forward ? 0 : -1;
    const int64_t high = forward ? length : length - 1;
    const int64_t position = *bound < 0 ? *bound + length : *bound;
    return std::min(std::max(position, low), high);
  };
  const int64_t start = clamp(bounds.start, forward ? 0 : length - 1);
  const int64_t stop = clamp(bounds.stop, forward ? length : -1);
  const int64_t distance = forward ? stop - start : start - stop;
  if (distance <= 0) return {start, bounds.step, 0};
  const uint64_t stride =
      forward ? static_cast<uint64_t>(bounds.step) : uint64_t{0} - static_cast<uint64_t>(bounds.step);
  return {start, bounds.step, static_cast<int64_t>((static_cast<uint64_t>(distance) - 1) / stride) + 1};
}

Value slice_text(Runtime& runtime, const Text& text, const Slice& bounds) {
  const std::string_view bytes = text.view();
  runtime.budget().step_bytes(bytes.size());
  const Walk walk = walk_of(bounds, static_cast<int64_t>(count_code_points(bytes)));
  TextBuilder out(runtime.budget());
  if (walk.step == 1) {
    const size_t begin = byte_position(bytes, static_cast<size_t>(walk.first));
    out.add(text, {begin, begin + byte_position(bytes.substr(begin), static_cast<size_t>(walk.count))});
  } else {
    runtime.budget().require(bytes.size() * sizeof(size_t));
    std::vector<size_t> starts;  // byte position of every code point
    for (size_t i = 0; i < bytes.size(); i += decode_at(bytes, i).length) starts.push_back(i);
    for (int64_t i = 0; i < walk.count; ++i) {
      const size_t begin = starts[static_cast<size_t>(walk.first + i * walk.step)];
      out.add(text, {begin, begin + decode_at(bytes, begin).length});
    }
  }
  Text result = out.take();
  result.set_markup(text.markup());
  return runtime.heap().string(std::move(result));
}

}  // namespace

Value arithmetic_add(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return number_arithmetic(ArithmeticOperator::Add, a, b);
  if (a.is_string() && b.is_string()) {
    const bool markup = a.text().markup() || b.text().markup();
    TextBuilder out(runtime.budget());
    for (const Value* side : {&a, &b}) {
      out.add(markup && !side->text().markup() ? escape_html(runtime, side->text()) : side->text());
    }
    Text sum = out.take();
    sum.set_markup(markup);
    return runtime.heap().string(std::move(sum));
  }
  if (is_repeatable(a) && is_repeatable(b) && a.is_list() && b.is_list() && a.list().kind == b.list().kind) {
    const List& left = a.list();
    const List& right = b.list();
    runtime.budget().require((left.items.size() + right.items.size()) * sizeof(Value));
    std::vector<Value> items = left.items;
    items.insert(items.end(), right.items.begin(), right.items.end());
    return runtime.heap().list(std::move(items), left.kind);
  }
  if (a.is_string() && !b.is_undefined()) {
    raise(fmt::format("can only concatenate str (not \"{}\") to str", type_name(b)));
  }
  unsupported("+", a, b);
}

Value arithmetic(Runtime& runtime, ArithmeticOperator op, const Value& a, const Value& b) {
  if (op == ArithmeticOperator::Add) return arithmetic_add(runtime, a, b);
  if (a.is_number() && b.is_number()) return number_arithmetic(op, a, b);
  if (op == ArithmeticOperator::Modulo && a.is_string()) return format_percent(runtime, a.text(), b);
  if (op == ArithmeticOperator::Multiply && is_repeatable(a) && b.is_integral())
    return repeat(runtime, a, b.integer());
  if (op == ArithmeticOperator::Multiply && is_repeatable(b) && a.is_integral())
    return repeat(runtime, b, a.integer());
  unsupported(symbol_of(op), a, b);
}

Value unary(UnaryOperator op, const Value& value) {
  require_defined(value);
  if (!value.is_number()) raise(fmt::format("bad operand type for a sign: '{}'", type_name(value)));
  if (op == UnaryOperator::Plus) return value.is_bool() ? Value(value.integer()) : value;
  if (value.is_float()) return Value(-value.number());
  return integer_arithmetic(ArithmeticOperator::Subtract, 0, value.integer());
}

size_t find_bytes(std::string_view bytes, std::string_view needle, size_t from) {
  if (from > bytes.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* found = memmem(bytes.data() + from, bytes.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - bytes.data());
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  Budget& budget = runtime.budget();
  if (container.is_string()) {
    require_defined(item);
    if (!item.is_string()) {
      raise(fmt::format("'in <string>' requires a string as left operand, not '{}'", type_name(item)));
    }
    budget.step_bytes(container.text().size());
    return find_bytes(container.bytes(), item.bytes(), 0) != std::string_view::npos;
  }
  if (container.is_map()) {
    if (item.is_list() || item.is_map()) raise(fmt::format("unhashable type: '{}'", type_name(item)));
    return !item.is_undefined() && !item.is_object() && container.map().find(item) != nullptr;
  }
  if (!is_iterable(container))
    raise(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  if (container.is_list()) {
    for (const Value& candidate : container.list().items) {
      if (equals(candidate, item, budget)) return true;
    }
    return false;
  }
  for (const Value& candidate : items_of(runtime.heap(), container)) {
    if (equals(candidate, item, budget)) return true;
  }
  return false;
}

bool compare_with(Runtime& runtime, CompareOperator op, const Value& a, const Value& b) {
  Budget& budget = runtime.budget();
  const bool unordered = (a.is_float() && std::isnan(a.number())) || (b.is_float() && std::isnan(b.number()));
  switch (op) {
    case CompareOperator::Equal:
      return equals(a, b, budget);
    case CompareOperator::NotEqual:
      return !equals(a, b, budget);
    case CompareOperator::Less:
      return compare(a, b, budget) < 0;
    case CompareOperator::LessEqual:
      return compare(a, b, budget) <= 0 && !unordered;
    case CompareOperator::Greater:
      return compare(a, b, budget) > 0;
    case CompareOperator::GreaterEqual:
      return compare(a, b, budget) >= 0 && !unordered;
    case CompareOperator::In:
      return contains(runtime, b, a);
    case CompareOperator::NotIn:
      return !contains(runtime, b, a);
  }
  return false;
}

std::optional<Value> index_sequence(Runtime& runtime, const Value& sequence, int64_t index) {
  const std::optional<int64_t> length = length_of(sequence);
  if (sequence.is_list() && sequence.list().is_view()) return std::nullopt;
  if (index < 0) index += *length;
  if (index < 0 || index >= *length) return std::nullopt;
  if (sequence.is_list()) return sequence.list().items[static_cast<size_t>(index)];
  runtime.budget().step_bytes(sequence.text().size());
  return slice_text(runtime, sequence.text(), {index, index + 1, 1});
}

Value slice(Runtime& runtime, const Value& sequence, const Slice& bounds) {
  require_defined(sequence);
  if (sequence.is_string()) return slice_text(runtime, sequence.text(), bounds);
  if (sequence.is_map()) raise("unhashable type: 'slice'");
  if (!sequence.is_list() || sequence.list().is_view()) {
    return runtime.heap().undefined(fmt::format("'{}' object has no slices", type_name(sequence)));
  }
  const List& list = sequence.list();
  const Walk walk = walk_of(bounds, static_cast<int64_t>(list.items.size()));
  runtime.budget().require(static_cast<size_t>(walk.count) * sizeof(Value));
  std::vector<Value> items;
  for (int64_t i = 0; i < walk.count; ++i)
    items.push_back(list.items[static_cast<size_t>(walk.first + i * walk.step)]);
  return runtime.heap().list(std::move(items), list.kind);
}

}  // namespace sluice::jinja

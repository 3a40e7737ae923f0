// Operators of the expression language, with Python's meaning. Integers have 64 bits; leaving them is an
// error.
#pragma once

#include <optional>

#include "jinja/runtime.h"
#include "jinja/syntax/ast.h"

namespace sluice::jinja {

Value arithmetic(Runtime& runtime, ArithmeticOperator op, const Value& a, const Value& b);
Value unary(UnaryOperator op, const Value& value);
bool compare_with(Runtime& runtime, CompareOperator op, const Value& a, const Value& b);

// sequence[index] of a list, tuple, range or string; nullopt where there is no such item.
std::optional<Value> index_sequence(Runtime& runtime, const Value& sequence, int64_t index);

struct Slice {
  std::optional<int64_t> start, stop;
  int64_t step = 1;  // not 0
};
Value slice(Runtime& runtime, const Value& sequence, const Slice& bounds);

// left % right where left is a string
Value format_percent(Runtime& runtime, const Text& format, const Value& right);
// str.format
Value format_braces(Runtime& runtime, const Text& format, const Arguments& arguments);

}  // namespace sluice::jinja

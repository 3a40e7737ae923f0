#include <fmt/format.h>

#include <algorithm>

#include "jinja/runtime.h"
#include "jinja/values/operators.h"
#include "jinja/values/unicode.h"

namespace sluice::jinja {

namespace {

template <CompareOperator op>
bool test_compare(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "test", {"other"});
  return compare_with(runtime, op, input, bound.at(0));
}

void expect_none(const Arguments& arguments) {
  const Bound bound(arguments, "test", {});
}

template <bool (*predicate)(const Value&)>
bool test_kind(Runtime&, const Value& input, const Arguments& arguments) {
  expect_none(arguments);
  return predicate(input);
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.is_bool();
}
bool is_integer(const Value& value) {
  return value.is_int();
}
bool is_float(const Value& value) {
  return value.is_float();
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_string(const Value& value) {
  return value.is_string();
}
bool is_mapping(const Value& value) {
  return value.is_map();
}
bool is_true_value(const Value& value) {
  return value.is_bool() && value.boolean();
}
bool is_false_value(const Value& value) {
  return value.is_bool() && !value.boolean();
}
bool is_callable(const Value& value) {
  return value.is_undefined() || (value.is_object() && value.object().callable());
}
bool is_escaped(const Value& value) {
  return value.is_string() && value.text().markup();
}
bool is_sequence(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_map() ||
         (value.is_list() && !value.list().is_view());
}

// x % other, for the tests that divide
int64_t modulo(Runtime& runtime, const Value& input, const Value& other) {
  const Value rest = arithmetic(runtime, ArithmeticOperator::Modulo, input, other);
  if (rest.is_integral()) return rest.integer();
  return rest.is_float() && rest.number() == 0 ? 0 : rest.is_float() && rest.number() == 1 ? 1 : 2;
}

bool test_odd(Runtime& runtime, const Value& input, const Arguments& arguments) {
  expect_none(arguments);
  return modulo(runtime, input, Value(int64_t{2})) == 1;
}

bool test_even(Runtime& runtime, const Value& input, const Arguments& arguments) {
  expect_none(arguments);
  return modulo(runtime, input, Value(int64_t{2})) == 0;
}

bool test_divisibleby(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "divisibleby", {"num"});
  return modulo(runtime, input, bound.at(0)) == 0;
}

bool test_sameas(Runtime&, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "sameas", {"other"});
  const Value& other = bound.at(0);
  if (input.is_none() || other.is_none()) return input.is_none() && other.is_none();
  if (input.is_bool() && other.is_bool()) return input.boolean() == other.boolean();
  if (input.is_int() && other.is_int()) return input.integer() == other.integer();
  // Short strings are one object in Python; equal text is the closest reading.
  if (input.is_string() && other.is_string()) return input.bytes() == other.bytes();
  return input.same_as(other);
}

// Python's islower and isupper: at least one letter with case, and none of the other case.
bool has_only_case(const Text& text, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  bool any = false;
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = decode_at(text.view(), i);
    if (other(point.value)) return false;
    any = any || wanted(point.value);
    i += point.length;
  }
  return any;
}

bool test_lower(Runtime& runtime, const Value& input, const Arguments& arguments) {
  expect_none(arguments);
  return has_only_case(runtime.str(input).text(), is_lower, is_upper);
}

bool test_upper(Runtime& runtime, const Value& input, const Arguments& arguments) {
  expect_none(arguments);
  return has_only_case(runtime.str(input).text(), is_upper, is_lower);
}

bool test_in(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "in", {"seq"});
  return contains(runtime, bound.at(0), input);
}

bool test_filter(Runtime&, const Value& input, const Arguments& arguments) {
  expect_none(arguments);
  return input.is_string() && find_filter(input.bytes()) != nullptr;
}

bool test_test(Runtime&, const Value& input, const Arguments& arguments) {
  expect_none(arguments);
  return input.is_string() && find_test(input.bytes()) != nullptr;
}

struct NamedTest {
  std::string_view name;
  TestCall call;
};

constexpr NamedTest kTests[] = {
    {"defined", test_kind<is_defined>},
    {"undefined", test_kind<is_undefined>},
    {"none", test_kind<is_none>},
    {"string", test_kind<is_string>},
    {"mapping", test_kind<is_mapping>},
    {"iterable", test_kind<is_iterable>},
    {"sequence", test_kind<is_sequence>},
    {"boolean", test_kind<is_boolean>},
    {"true", test_kind<is_true_value>},
    {"false", test_kind<is_false_value>},
    {"integer", test_kind<is_integer>},
    {"float", test_kind<is_float>},
    {"number", test_kind<is_number>},
    {"callable", test_kind<is_callable>},
    {"escaped", test_kind<is_escaped>},
    {"odd", test_odd},
    {"even", test_even},
    {"divisibleby", test_divisibleby},
    {"sameas", test_sameas},
    {"lower", test_lower},
    {"upper", test_upper},
    {"in", test_in},
    {"filter", test_filter},
    {"test", test_test},
    {"==", test_compare<CompareOperator::Equal>},
    {"eq", test_compare<CompareOperator::Equal>},
    {"equalto", test_compare<CompareOperator::Equal>},
    {"!=", test_compare<CompareOperator::NotEqual>},
    {"ne", test_compare<CompareOperator::NotEqual>},
    {"<", test_compare<CompareOperator::Less>},
    {"lt", test_compare<CompareOperator::Less>},
    {"lessthan", test_compare<CompareOperator::Less>},
    {"<=", test_compare<CompareOperator::LessEqual>},
    {"le", test_compare<CompareOperator::LessEqual>},
    {">", test_compare<CompareOperator::Greater>},
    {"gt", test_compare<CompareOperator::Greater>},
    {"greaterthan", test_compare<CompareOperator::Greater>},
    {">=", test_compare<CompareOperator::GreaterEqual>},
    {"ge", test_compare<CompareOperator::GreaterEqual>},
};

}  // namespace

TestCall find_test(std::string_view name) {
  const auto found = std::find_if(std::begin(kTests), std::end(kTests),
                                  [&](const NamedTest& test) { return test.name == name; });
  return found == std::end(kTests) ? nullptr : found->call;
}

}  // namespace sluice::jinja

#include <fmt/format.h>

#include "jinja/interpreter.h"
#include "jinja/values/operators.h"

namespace sluice::jinja {

Value Interpreter::evaluate(const Expression& expression) {
  const DepthGuard guard(runtime_.depth(), runtime_.budget().limits().evaluation_depth, "nested evaluations");
  runtime_.budget().step();
  *line_ = expression.line;
  return std::visit([this](const auto& node) { return evaluate_node(node); }, expression.node);
}

Value Interpreter::evaluate_node(const SequenceExpression& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExpressionPtr& item : node.items) items.push_back(evaluate(*item));
  return runtime_.heap().list(std::move(items), node.kind);
}

Value Interpreter::evaluate_node(const DictExpression& node) {
  std::vector<Map::Entry> entries;
  for (const auto& [key, value] : node.entries) {
    Value made_key = evaluate(*key);
    entries.push_back({std::move(made_key), evaluate(*value)});
  }
  return runtime_.heap().map(std::move(entries));
}

Value Interpreter::evaluate_node(const NotExpression& node) {
  return Value(!is_true(evaluate(*node.operand)));
}

Value Interpreter::evaluate_node(const UnaryExpression& node) {
  return unary(node.op, evaluate(*node.operand));
}

Value Interpreter::evaluate_node(const ArithmeticExpression& node) {
  Value result = evaluate(*node.first);
  for (const auto& [op, operand] : node.rest) result = arithmetic(runtime_, op, result, evaluate(*operand));
  return result;
}

Value Interpreter::evaluate_node(const ConcatExpression& node) {
  TextBuilder out(runtime_.budget());
  for (const ExpressionPtr& part : node.parts) print(runtime_, evaluate(*part), out);
  return runtime_.heap().string(out.take());
}

Value Interpreter::evaluate_node(const CompareExpression& node) {
  Value left = evaluate(*node.first);
  for (const auto& [op, operand] : node.rest) {
    Value right = evaluate(*operand);
    if (!compare_with(runtime_, op, left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::evaluate_node(const LogicExpression& node) {
  Value result;
  for (const ExpressionPtr& operand : node.operands) {
    result = evaluate(*operand);
    if (is_true(result) == (node.op == LogicOperator::Or)) return result;
  }
  return result;
}

Value Interpreter::evaluate_node(const ConditionalExpression& node) {
  if (is_true(evaluate(*node.condition))) return evaluate(*node.then);
  if (node.otherwise != nullptr) return evaluate(*node.otherwise);
  return runtime_.heap().undefined("an inline if was false and has no else");
}

Value Interpreter::evaluate_node(const AttributeExpression& node) {
  return runtime_.attribute(evaluate(*node.object), node.name);
}

Value Interpreter::evaluate_node(const SubscriptExpression& node) {
  const Value object = evaluate(*node.object);
  return runtime_.item(object, evaluate(*node.index));
}

Value Interpreter::evaluate_node(const SliceExpression& node) {
  const Value object = evaluate(*node.object);
  const auto bound = [&](const ExpressionPtr& expression) -> std::optional<int64_t> {
    if (expression == nullptr) return std::nullopt;
    const Value value = evaluate(*expression);
    if (value.is_none()) return std::nullopt;
    return require_integer(value, "a slice bound");
  };
  Slice bounds{bound(node.start), bound(node.stop)};
  bounds.step = bound(node.step).value_or(1);
  if (bounds.step == 0) raise("slice step cannot be zero");
  return slice(runtime_, object, bounds);
}

Value Interpreter::evaluate_node(const CallExpression& node) {
  return call(node, nullptr);
}

Value Interpreter::call(const CallExpression& node, const Value* caller) {
  const auto* method = std::get_if<AttributeExpression>(&node.callee->node);
  const Value object = evaluate(method != nullptr ? *method->object : *node.callee);
  require_defined(object);
  Arguments arguments = evaluate_arguments(node.arguments);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  *line_ = node.callee->line;
  return method != nullptr ? runtime_.call_method(object, method->name, arguments)
                           : runtime_.call(object, arguments);
}

Arguments Interpreter::evaluate_arguments(const CallArguments& arguments) {
  Arguments made;
  for (const ExpressionPtr& argument : arguments.positional) made.positional.push_back(evaluate(*argument));
  if (arguments.star != nullptr) {
    for (Value& item : items_of(runtime_.heap(), evaluate(*arguments.star)))
      made.positional.push_back(std::move(item));
  }
  for (const auto& [name, argument] : arguments.named) made.named.emplace_back(name, evaluate(*argument));
  if (arguments.double_star == nullptr) return made;
  const Value extra = evaluate(*arguments.double_star);
  require_defined(extra);
  if (!extra.is_map()) raise(fmt::format("argument after ** must be a mapping, not '{}'", type_name(extra)));
  for (const Map::Entry& entry : extra.map().entries) {
    if (!entry.key.is_string()) raise("keywords must be strings");
    made.named.emplace_back(entry.key.bytes(), entry.value);
  }
  return made;
}

Value Interpreter::evaluate_node(const FilterExpression& node) {
  const Value input = node.input != nullptr ? evaluate(*node.input) : *block_text_;
  const Arguments arguments = evaluate_arguments(node.arguments);
  return runtime_.filter(node.name, input, arguments);
}

Value Interpreter::apply_filters(const ExpressionPtr& filters, Value input) {
  if (filters == nullptr) return input;
  const Value* outer = std::exchange(block_text_, &input);
  Value result = evaluate(*filters);
  block_text_ = outer;
  return result;
}

Value Interpreter::evaluate_node(const TestExpression& node) {
  const Value input = evaluate(*node.input);
  const Arguments arguments = evaluate_arguments(node.arguments);
  return Value(runtime_.test(node.name, input, arguments));
}

}  // namespace sluice::jinja

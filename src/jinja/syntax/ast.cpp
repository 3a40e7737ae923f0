#include "jinja/syntax/ast.h"

#include <algorithm>

namespace sluice::jinja {

namespace {

size_t deepest(const ExpressionPtr& expression) {
  return expression == nullptr ? 0 : expression->depth;
}

size_t deepest(const std::vector<ExpressionPtr>& expressions) {
  size_t depth = 0;
  for (const ExpressionPtr& expression : expressions) depth = std::max(depth, deepest(expression));
  return depth;
}

template <class First>
size_t deepest(const std::vector<std::pair<First, ExpressionPtr>>& pairs) {
  size_t depth = 0;
  for (const auto& [first, second] : pairs) {
    depth = std::max(depth, deepest(second));
    if constexpr (std::is_same_v<First, ExpressionPtr>) depth = std::max(depth, deepest(first));
  }
  return depth;
}

size_t deepest(const CallArguments& arguments) {
  return std::max({deepest(arguments.positional), deepest(arguments.named), deepest(arguments.star),
                   deepest(arguments.double_star)});
}

size_t of(const LiteralExpression&) {
  return 0;
}
size_t of(const NameExpression&) {
  return 0;
}
size_t of(const SequenceExpression& node) {
  return deepest(node.items);
}
size_t of(const DictExpression& node) {
  return deepest(node.entries);
}
size_t of(const NotExpression& node) {
  return deepest(node.operand);
}
size_t of(const UnaryExpression& node) {
  return deepest(node.operand);
}
size_t of(const ArithmeticExpression& node) {
  return std::max(deepest(node.first), deepest(node.rest));
}
size_t of(const ConcatExpression& node) {
  return deepest(node.parts);
}
size_t of(const CompareExpression& node) {
  return std::max(deepest(node.first), deepest(node.rest));
}
size_t of(const LogicExpression& node) {
  return deepest(node.operands);
}
size_t of(const ConditionalExpression& node) {
  return std::max({deepest(node.condition), deepest(node.then), deepest(node.otherwise)});
}
size_t of(const AttributeExpression& node) {
  return deepest(node.object);
}
size_t of(const SubscriptExpression& node) {
  return std::max(deepest(node.object), deepest(node.index));
}
size_t of(const SliceExpression& node) {
  return std::max({deepest(node.object), deepest(node.start), deepest(node.stop), deepest(node.step)});
}
size_t of(const CallExpression& node) {
  return std::max(deepest(node.callee), deepest(node.arguments));
}
size_t of(const FilterExpression& node) {
  return std::max(deepest(node.input), deepest(node.arguments));
}
size_t of(const TestExpression& node) {
  return std::max(deepest(node.input), deepest(node.arguments));
}

}  // namespace

size_t operands_depth(const ExpressionNode& node) {
  return std::visit([](const auto& alternative) { return of(alternative); }, node);
}

}  // namespace sluice::jinja

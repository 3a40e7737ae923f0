#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "jinja/syntax/parser.h"

namespace sluice::jinja {

namespace {

int64_t parse_integer(const std::string& digits) {
  constexpr std::string_view prefixes = "xXoObB";
  constexpr int bases[] = {16, 16, 8, 8, 2, 2};
  const size_t prefix = digits.size() > 1 ? prefixes.find(digits[1]) : std::string_view::npos;
  const bool prefixed = prefix != std::string_view::npos;
  const char* begin = digits.data() + (prefixed ? 2 : 0);
  const char* end = digits.data() + digits.size();
  int64_t value = 0;
  const auto [stopped, error] = std::from_chars(begin, end, value, prefixed ? bases[prefix] : 10);
  if (error != std::errc() || stopped != end) raise(fmt::format("'{}' is not a 64-bit integer", digits));
  return value;
}

double parse_float(const std::string& digits) {
  double value = 0;
  const auto [stopped, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc()) raise(fmt::format("'{}' is not a number", digits));
  return value;
}

}  // namespace

ExpressionPtr Parser::make(ExpressionNode node, int line) {
  count_node();
  const size_t depth = operands_depth(node) + 1;
  if (depth > limits_.depth) raise_limit("nesting of expressions", limits_.depth);
  return std::make_unique<Expression>(Expression{std::move(node), line, depth});
}

bool Parser::at_expression_end() const {
  const Token& token = peek();
  return token.kind == TokenKind::PrintEnd || token.kind == TokenKind::BlockEnd || token.is_operator(")") ||
         token.is_name("in") || token.is_name("recursive");
}

// One expression, or several with commas between them, which make a tuple.
ExpressionPtr Parser::parse_tuple(Condition condition) {
  const int line = peek().line;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (!at_expression_end()) {
    items.push_back(parse_expression(condition));
    if (!take_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.empty()) unexpected("an expression");
  if (!is_tuple) return std::move(items[0]);
  return make(SequenceExpression{ListKind::Tuple, std::move(items)}, line);
}

ExpressionPtr Parser::parse_expression(Condition condition) {
  const DepthGuard guard(depth_, limits_.depth, "nesting");
  return condition == Condition::Allowed ? parse_conditional() : parse_logic(LogicOperator::Or);
}

ExpressionPtr Parser::parse_conditional() {
  const int line = peek().line;
  ExpressionPtr expression = parse_logic(LogicOperator::Or);
  while (take_name("if")) {
    ExpressionPtr condition = parse_logic(LogicOperator::Or);
    ExpressionPtr otherwise = take_name("else") ? parse_expression() : nullptr;
    expression =
        make(ConditionalExpression{std::move(condition), std::move(expression), std::move(otherwise)}, line);
  }
  return expression;
}

ExpressionPtr Parser::parse_logic(LogicOperator op) {
  const int line = peek().line;
  const bool is_or = op == LogicOperator::Or;
  std::vector<ExpressionPtr> operands;
  do {
    operands.push_back(is_or ? parse_logic(LogicOperator::And) : parse_not());
  } while (take_name(is_or ? "or" : "and"));
  if (operands.size() == 1) return std::move(operands[0]);
  return make(LogicExpression{op, std::move(operands)}, line);
}

ExpressionPtr Parser::parse_not() {
  const int line = peek().line;
  size_t count = 0;
  while (take_name("not")) ++count;
  ExpressionPtr expression = parse_compare();
  for (; count > 0; --count) expression = make(NotExpression{std::move(expression)}, line);
  return expression;
}

ExpressionPtr Parser::parse_compare() {
  static constexpr std::pair<std::string_view, CompareOperator> kCompare[] = {
      {"==", CompareOperator::Equal},  {"!=", CompareOperator::NotEqual},
      {"<", CompareOperator::Less},    {"<=", CompareOperator::LessEqual},
      {">", CompareOperator::Greater}, {">=", CompareOperator::GreaterEqual}};
  const int line = peek().line;
  ExpressionPtr first = parse_sum();
  std::vector<std::pair<CompareOperator, ExpressionPtr>> rest;
  while (true) {
    const auto found = std::find_if(std::begin(kCompare), std::end(kCompare),
                                    [&](const auto& row) { return peek().is_operator(row.first); });
    if (found != std::end(kCompare)) {
      take();
      rest.emplace_back(found->second, parse_sum());
    } else if (take_name("in")) {
      rest.emplace_back(CompareOperator::In, parse_sum());
    } else if (peek().is_name("not") && peek(1).is_name("in")) {
      take();
      take();
      rest.emplace_back(CompareOperator::NotIn, parse_sum());
    } else {
      break;
    }
  }
  if (rest.empty()) return first;
  return make(CompareExpression{std::move(first), std::move(rest)}, line);
}

ExpressionPtr Parser::parse_sum() {
  const int line = peek().line;
  ExpressionPtr first = parse_concat();
  std::vector<std::pair<ArithmeticOperator, ExpressionPtr>> rest;
  while (peek().is_operator("+") || peek().is_operator("-")) {
    const auto op = take().text == "+" ? ArithmeticOperator::Add : ArithmeticOperator::Subtract;
    rest.emplace_back(op, parse_concat());
  }
  if (rest.empty()) return first;
  return make(ArithmeticExpression{std::move(first), std::move(rest)}, line);
}

ExpressionPtr Parser::parse_concat() {
  const int line = peek().line;
  std::vector<ExpressionPtr> parts;
  do {
    parts.push_back(parse_product());
  } while (take_operator("~"));
  if (parts.size() == 1) return std::move(parts[0]);
  return make(ConcatExpression{std::move(parts)}, line);
}

ExpressionPtr Parser::parse_product() {
  static constexpr std::pair<std::string_view, ArithmeticOperator> kProduct[] = {
      {"*", ArithmeticOperator::Multiply},
      {"/", ArithmeticOperator::Divide},
      {"//", ArithmeticOperator::FloorDivide},
      {"%", ArithmeticOperator::Modulo}};
  const int line = peek().line;
  ExpressionPtr first = parse_power();
  std::vector<std::pair<ArithmeticOperator, ExpressionPtr>> rest;
  while (true) {
    const auto found = std::find_if(std::begin(kProduct), std::end(kProduct),
                                    [&](const auto& row) { return peek().is_operator(row.first); });
    if (found == std::end(kProduct)) break;
    take();
    rest.emplace_back(found->second, parse_power());
  }
  if (rest.empty()) return first;
  return make(ArithmeticExpression{std::move(first), std::move(rest)}, line);
}

ExpressionPtr Parser::parse_power() {
  const int line = peek().line;
  ExpressionPtr first = parse_unary();
  std::vector<std::pair<ArithmeticOperator, ExpressionPtr>> rest;
  while (take_operator("**")) rest.emplace_back(ArithmeticOperator::Power, parse_unary());
  if (rest.empty()) return first;
  return make(ArithmeticExpression{std::move(first), std::move(rest)}, line);
}

ExpressionPtr Parser::parse_unary() {
  const int line = peek().line;
  std::vector<UnaryOperator> signs;
  while (peek().is_operator("-") || peek().is_operator("+")) {
    signs.push_back(take().text == "-" ? UnaryOperator::Negate : UnaryOperator::Plus);
  }
  ExpressionPtr expression = parse_postfix(parse_primary());
  for (size_t i = signs.size(); i > 0; --i) {
    expression = make(UnaryExpression{signs[i - 1], std::move(expression)}, line);
  }
  return parse_filters_and_tests(std::move(expression));
}

ExpressionPtr Parser::parse_primary() {
  const Token& token = peek();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::Name:
      return parse_name_or_constant();
    case TokenKind::Integer:
      return make(LiteralExpression{Value(parse_integer(take().text))}, line);
    case TokenKind::Float:
      return make(LiteralExpression{Value(parse_float(take().text))}, line);
    case TokenKind::String: {
      std::string text = take().text;
      while (peek().kind == TokenKind::String) text += take().text;
      return make(LiteralExpression{make_string(Text(std::move(text)))}, line);
    }
    default:
      return parse_bracketed();
  }
}

ExpressionPtr Parser::parse_bracketed() {
  const int line = peek().line;
  if (take_operator("(")) {
    if (take_operator(")")) return make(SequenceExpression{ListKind::Tuple, {}}, line);
    ExpressionPtr inner = parse_tuple();
    expect_operator(")");
    return inner;
  }
  if (peek().is_operator("[")) return parse_list();
  if (peek().is_operator("{")) return parse_dict();
  unexpected("an expression");
}

ExpressionPtr Parser::parse_name_or_constant() {
  const int line = peek().line;
  const std::string name = take().text;
  if (name == "true" || name == "True") return make(LiteralExpression{Value(true)}, line);
  if (name == "false" || name == "False") return make(LiteralExpression{Value(false)}, line);
  if (name == "none" || name == "None") return make(LiteralExpression{Value()}, line);
  return make(NameExpression{intern(name)}, line);
}

ExpressionPtr Parser::parse_list() {
  const int line = take().line;
  std::vector<ExpressionPtr> items;
  while (!take_operator("]")) {
    if (!items.empty()) {
      expect_operator(",");
      if (take_operator("]")) break;
    }
    items.push_back(parse_expression());
  }
  return make(SequenceExpression{ListKind::List, std::move(items)}, line);
}

ExpressionPtr Parser::parse_dict() {
  const int line = take().line;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
  while (!take_operator("}")) {
    if (!entries.empty()) {
      expect_operator(",");
      if (take_operator("}")) break;
    }
    ExpressionPtr key = parse_expression();
    expect_operator(":");
    ExpressionPtr value = parse_expression();
    entries.emplace_back(std::move(key), std::move(value));
  }
  return make(DictExpression{std::move(entries)}, line);
}

ExpressionPtr Parser::parse_postfix(ExpressionPtr expression) {
  while (true) {
    const int line = peek().line;
    if (peek().is_operator(".")) {
      expression = parse_attribute(std::move(expression));
    } else if (peek().is_operator("[")) {
      expression = parse_subscript(std::move(expression));
    } else if (peek().is_operator("(")) {
      CallArguments arguments = parse_call_arguments();
      expression = make(CallExpression{std::move(expression), std::move(arguments)}, line);
    } else {
      return expression;
    }
  }
}

ExpressionPtr Parser::parse_attribute(ExpressionPtr object) {
  const int line = take().line;
  if (peek().kind == TokenKind::Integer) {
    ExpressionPtr index = make(LiteralExpression{Value(parse_integer(take().text))}, line);
    return make(SubscriptExpression{std::move(object), std::move(index)}, line);
  }
  return make(AttributeExpression{std::move(object), expect_name()}, line);
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr object) {
  const int line = take().line;
  ExpressionPtr parts[3];
  size_t colons = 0;
  while (!take_operator("]")) {
    if (take_operator(":")) {
      if (++colons > 2) unexpected("']'");
    } else if (parts[colons] == nullptr) {
      parts[colons] = parse_expression();
      if (colons == 0 && peek().is_operator(",")) raise("a subscript takes one index");
    } else {
      unexpected("']'");
    }
  }
  if (colons > 0) {
    return make(
        SliceExpression{std::move(object), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])},
        line);
  }
  if (parts[0] == nullptr) unexpected("an index");
  return make(SubscriptExpression{std::move(object), std::move(parts[0])}, line);
}

ExpressionPtr Parser::parse_filters_and_tests(ExpressionPtr expression) {
  while (true) {
    const int line = peek().line;
    if (take_operator("|")) {
      expression = parse_filter(std::move(expression));
    } else if (take_name("is")) {
      expression = parse_test(std::move(expression));
    } else if (peek().is_operator("(")) {
      CallArguments arguments = parse_call_arguments();
      expression = make(CallExpression{std::move(expression), std::move(arguments)}, line);
    } else {
      return expression;
    }
  }
}

ExpressionPtr Parser::parse_filter(ExpressionPtr input) {
  const int line = peek().line;
  std::string name = expect_name();
  while (take_operator(".")) name += "." + expect_name();
  CallArguments arguments;
  if (peek().is_operator("(")) arguments = parse_call_arguments();
  return make(FilterExpression{std::move(input), std::move(name), std::move(arguments)}, line);
}

ExpressionPtr Parser::parse_filter_chain(ExpressionPtr input) {
  do {
    input = parse_filter(std::move(input));
  } while (take_operator("|"));
  return input;
}

ExpressionPtr Parser::parse_test(ExpressionPtr input) {
  const int line = peek().line;
  const bool negated = take_name("not");
  std::string name = expect_name();
  while (take_operator(".")) name += "." + expect_name();
  CallArguments arguments;
  const Token& token = peek();
  const bool value_follows = token.kind == TokenKind::Name || token.kind == TokenKind::String ||
                             token.kind == TokenKind::Integer || token.kind == TokenKind::Float ||
                             token.is_operator("[") || token.is_operator("{");
  const bool word_follows = token.is_name("else") || token.is_name("or") || token.is_name("and");
  if (token.is_operator("(")) {
    arguments = parse_call_arguments();
  } else if (value_follows && !word_follows) {
    if (token.is_name("is")) raise("tests cannot be chained with 'is'");
    arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  ExpressionPtr test = make(TestExpression{std::move(input), std::move(name), std::move(arguments)}, line);
  return negated ? make(NotExpression{std::move(test)}, line) : std::move(test);
}

CallArguments Parser::parse_call_arguments() {
  expect_operator("(");
  CallArguments arguments;
  bool first = true;
  while (!take_operator(")")) {
    if (!first) {
      expect_operator(",");
      if (take_operator(")")) break;
    }
    first = false;
    const bool named = peek().kind == TokenKind::Name && peek(1).is_operator("=");
    if (arguments.double_star != nullptr) unexpected("')'");
    if (take_operator("**")) {
      arguments.double_star = parse_expression();
    } else if (named) {
      std::string name = take().text;
      take();
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else if (peek().is_operator("*") && arguments.star == nullptr) {
      take();
      arguments.star = parse_expression();
    } else if (arguments.star != nullptr || !arguments.named.empty()) {
      raise("a positional argument follows a named one");
    } else {
      arguments.positional.push_back(parse_expression());
    }
  }
  return arguments;
}

}  // namespace sluice::jinja

// The syntax tree of a template. It never changes once parsed and holds no state of a rendering, so that many
// threads can render one template.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "jinja/values/value.h"

namespace sluice::jinja {

// Index into SyntaxTree::names.
using NameId = uint32_t;

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct LiteralExpression {
  Value value;
};
struct NameExpression {
  NameId name;
};
struct SequenceExpression {
  ListKind kind;
  std::vector<ExpressionPtr> items;
};
struct DictExpression {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct NotExpression {
  ExpressionPtr operand;
};
enum class UnaryOperator : uint8_t { Negate, Plus };
struct UnaryExpression {
  UnaryOperator op;
  ExpressionPtr operand;
};
enum class ArithmeticOperator : uint8_t { Add, Subtract, Multiply, Divide, FloorDivide, Modulo, Power };
// first op operand op operand ..., from left to right
struct ArithmeticExpression {
  ExpressionPtr first;
  std::vector<std::pair<ArithmeticOperator, ExpressionPtr>> rest;
};
struct ConcatExpression {
  std::vector<ExpressionPtr> parts;
};
enum class CompareOperator : uint8_t { Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual, In, NotIn };
// a < b < c means a < b and b < c
struct CompareExpression {
  ExpressionPtr first;
  std::vector<std::pair<CompareOperator, ExpressionPtr>> rest;
};
enum class LogicOperator : uint8_t { And, Or };
struct LogicExpression {
  LogicOperator op;
  std::vector<ExpressionPtr> operands;
};
struct ConditionalExpression {
  ExpressionPtr condition, then, otherwise;  // otherwise may be null
};
struct AttributeExpression {
  ExpressionPtr object;
  std::string name;
};
struct SubscriptExpression {
  ExpressionPtr object, index;
};
// object[start:stop:step], each may be null
struct SliceExpression {
  ExpressionPtr object, start, stop, step;
};
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star, double_star;  // may be null
};
struct CallExpression {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct FilterExpression {
  ExpressionPtr input;  // null: the text of the block it ends
  std::string name;
  CallArguments arguments;
};
struct TestExpression {
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
};

using ExpressionNode =
    std::variant<LiteralExpression, NameExpression, SequenceExpression, DictExpression, NotExpression,
                 UnaryExpression, ArithmeticExpression, ConcatExpression, CompareExpression, LogicExpression,
                 ConditionalExpression, AttributeExpression, SubscriptExpression, SliceExpression,
                 CallExpression, FilterExpression, TestExpression>;

struct Expression {
  ExpressionNode node;
  int line = 1;
  size_t depth = 1;  // 1 + the deepest operand
};

// Depth of the deepest operand, 0 for a leaf.
size_t operands_depth(const ExpressionNode& node);

struct Statement;
using Block = std::vector<Statement>;

struct Target;
struct NameTarget {
  NameId name;
};
struct AttributeTarget {
  NameId name;
  std::string attribute;
};
struct TupleTarget {
  std::vector<Target> items;
};
struct Target {
  std::variant<NameTarget, AttributeTarget, TupleTarget> node;
};

struct DataStatement {
  Text text;
};
struct PrintStatement {
  ExpressionPtr expression;
};
struct ForStatement {
  Target target;
  ExpressionPtr iterable, filter;  // filter may be null
  bool recursive = false;
  std::unique_ptr<Block> body, otherwise;
};
struct IfStatement {
  struct Branch {
    ExpressionPtr condition;  // null: else
    std::unique_ptr<Block> body;
  };
  std::vector<Branch> branches;
};
struct SetStatement {
  Target target;
  ExpressionPtr value;
};
// {% set target | filters %}body{% endset %}
struct SetBlockStatement {
  Target target;
  ExpressionPtr filters;  // may be null
  std::unique_ptr<Block> body;
};
struct MacroDefinition {
  struct Parameter {
    NameId name;
    std::string text;
    ExpressionPtr fallback;  // may be null
  };
  std::string name;
  std::vector<Parameter> parameters;
  std::unique_ptr<Block> body;
  // Extra arguments are taken only where the body asks for them.
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};
struct MacroStatement {
  NameId name;
  std::shared_ptr<const MacroDefinition> macro;
};
struct CallBlockStatement {
  ExpressionPtr call;
  std::shared_ptr<const MacroDefinition> caller;
};
struct FilterBlockStatement {
  ExpressionPtr filters;
  std::unique_ptr<Block> body;
};
struct WithStatement {
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  std::unique_ptr<Block> body;
};
struct DoStatement {
  ExpressionPtr expression;
};
struct BreakStatement {};
struct ContinueStatement {};

struct Statement {
  std::variant<DataStatement, PrintStatement, ForStatement, IfStatement, SetStatement, SetBlockStatement,
               MacroStatement, CallBlockStatement, FilterBlockStatement, WithStatement, DoStatement,
               BreakStatement, ContinueStatement>
      node;
  int line = 1;
};

// Names with a meaning of their own have fixed ids.
enum WellKnownName : NameId { kLoop, kCaller, kVarargs, kKwargs, kWellKnownNames };

struct SyntaxTree {
  std::vector<std::string> names;
  std::map<std::string, NameId, std::less<>> ids;  // of names
  Block body;
};

}  // namespace sluice::jinja

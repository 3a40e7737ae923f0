// Runs a syntax tree: statements, scopes, loops and macros.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "jinja/runtime.h"
#include "jinja/syntax/ast.h"

namespace sluice::jinja {

// Names set in one block. Look-up goes outwards along `parent`.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<NameId, Value>> values;
  bool captured = false;  // a macro may still look into it
};

class Interpreter {
 public:
  Interpreter(const SyntaxTree& tree, Runtime& runtime);

  // Visible to the template under this name.
  void define(std::string_view name, Value value);
  // `line` follows the execution, for the message of an error.
  Text run(int& line);

  Value call_macro(const MacroDefinition& macro, Scope* closure, const Arguments& arguments);
  // One more level of a `recursive` loop, as text.
  Value run_loop_again(const ForStatement& statement, Scope* outer, const Value& iterable, size_t depth);

 private:
  enum class Flow : uint8_t { Normal, Break, Continue };
  class ScopeFrame;

  // statements
  Flow execute(const Block& block);
  Flow execute(const Statement& statement);
  Flow run_statement(const DataStatement& statement);
  Flow run_statement(const PrintStatement& statement);
  Flow run_statement(const ForStatement& statement);
  Flow run_statement(const IfStatement& statement);
  Flow run_statement(const SetStatement& statement);
  Flow run_statement(const SetBlockStatement& statement);
  Flow run_statement(const MacroStatement& statement);
  Flow run_statement(const CallBlockStatement& statement);
  Flow run_statement(const FilterBlockStatement& statement);
  Flow run_statement(const WithStatement& statement);
  Flow run_statement(const DoStatement& statement);
  Flow run_statement(const BreakStatement&) { return Flow::Break; }
  Flow run_statement(const ContinueStatement&) { return Flow::Continue; }

  Flow run_loop(const ForStatement& statement, const Value& iterable, size_t depth);
  std::vector<Value> filtered_items(const ForStatement& statement, const Value& iterable);
  // The block's output as a string value.
  Value capture(const Block& block);
  void write(const Text& text);
  void assign(const Target& target, const Value& value);
  void bind_arguments(const MacroDefinition& macro, const Arguments& arguments);
  void bind_extra_arguments(const MacroDefinition& macro, const Arguments& arguments);

  // scopes
  Scope* open_scope(Scope* parent);
  void close_scope(Scope* scope);
  void set_name(NameId name, Value value);
  Value find_name(NameId name);
  void keep_scopes(Scope* scope);

  // expressions
  Value evaluate(const Expression& expression);
  Value evaluate_node(const LiteralExpression& node) { return node.value; }
  Value evaluate_node(const NameExpression& node) { return find_name(node.name); }
  Value evaluate_node(const SequenceExpression& node);
  Value evaluate_node(const DictExpression& node);
  Value evaluate_node(const NotExpression& node);
  Value evaluate_node(const UnaryExpression& node);
  Value evaluate_node(const ArithmeticExpression& node);
  Value evaluate_node(const ConcatExpression& node);
  Value evaluate_node(const CompareExpression& node);
  Value evaluate_node(const LogicExpression& node);
  Value evaluate_node(const ConditionalExpression& node);
  Value evaluate_node(const AttributeExpression& node);
  Value evaluate_node(const SubscriptExpression& node);
  Value evaluate_node(const SliceExpression& node);
  Value evaluate_node(const CallExpression& node);
  Value evaluate_node(const FilterExpression& node);
  Value evaluate_node(const TestExpression& node);
  Value call(const CallExpression& node, const Value* caller);
  Arguments evaluate_arguments(const CallArguments& arguments);
  Value apply_filters(const ExpressionPtr& filters, Value input);

  const SyntaxTree& tree_;
  Runtime& runtime_;
  int* line_ = nullptr;
  std::vector<std::optional<Value>>
      globals_;  // by NameId: variables of the caller and names set outside of blocks
  Scope root_;   // stands for globals_ at the end of every chain
  Scope* scope_ = &root_;
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<Scope*> free_scopes_;
  TextBuilder* out_ = nullptr;
  size_t captures_ = 0;  // open ones: only what is written outside of them is output
  size_t macro_depth_ = 0;
  const Value* block_text_ = nullptr;  // input of a filter chain without one
};

}  // namespace sluice::jinja
